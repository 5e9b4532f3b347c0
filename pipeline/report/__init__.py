"""Looking at a finished run: datasets -> funnel, rule analysis, length skew, one record's way, HTML."""
