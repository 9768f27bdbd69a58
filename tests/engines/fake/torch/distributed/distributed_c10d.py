store = None


def _get_default_store():
    if store is None:
        raise ValueError("Default process group has not been initialized")
    return store
