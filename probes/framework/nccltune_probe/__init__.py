"""The probe of backends that live in Python: PyTorch, and the classes that SGLang and vLLM bring along."""
