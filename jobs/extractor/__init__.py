"""How the extraction model is trained: gold pages in, model.npz out. jobs/train_extractor.py is the command."""
