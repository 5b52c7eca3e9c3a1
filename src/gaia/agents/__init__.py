"""Agents and their parts; see `gaia.agents.base`."""
