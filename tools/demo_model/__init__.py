"""The parts of tools/train_demo_model.py: data, tokenizer, network, training, scoring."""
