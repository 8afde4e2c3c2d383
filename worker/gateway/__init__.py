"""The HTTP gateway: corpora, runs, questions and events for applications that know no Python."""
