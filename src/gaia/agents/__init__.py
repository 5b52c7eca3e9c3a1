"""Agents and their parts; `gaia.agents.base` has them."""
