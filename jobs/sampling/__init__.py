"""The made-up crawl segment that `gristmill sample` writes; a function of (pages, seed) alone, down to the byte."""
