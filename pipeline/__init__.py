"""All thinking: ingest, generations, retrieval. Knows no queue, no HTTP, no process."""
