"""The wire and storage contract: data only, no I/O."""
