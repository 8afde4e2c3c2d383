"""The process: settings, composition, arq, command line."""
