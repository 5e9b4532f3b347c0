"""Sentences of our own, one file per language, from which pages are made up."""
