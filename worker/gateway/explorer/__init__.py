"""The explorer: one page to look at corpora, graphs and the events of questions, made of files that need no build."""
