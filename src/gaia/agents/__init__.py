"""Agents and what they are built from; see `gaia.agents.base`."""
