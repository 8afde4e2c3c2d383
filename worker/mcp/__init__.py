"""Sapwood's tools over the Model Context Protocol: what they are, and the two ways to reach them."""
