"""Transformers' AutoModelForCausalLM, with the classes that it leaves out."""

from transformers import AutoModelForCausalLM, Mistral4Config, Mistral4ForCausalLM

# `register` takes none of Transformers' own classes.
AutoModelForCausalLM._model_mapping._extra_content[Mistral4Config] = Mistral4ForCausalLM

__all__ = ["AutoModelForCausalLM"]
