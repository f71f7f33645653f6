"""A bar that is not shown."""


class tqdm:
    def __init__(self, iterable, disable=False):
        pass

    def update(self, n):
        pass
