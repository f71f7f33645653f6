"""Batches of rows, in their order."""


class DataLoader:
    def __init__(self, rows, batch_size=1, shuffle=False, collate_fn=None):
        self.dataset, self.size, self.collate = rows, batch_size, collate_fn

    def __len__(self):
        return -(-len(self.dataset) // self.size)

    def __iter__(self):
        return (self.collate(self.dataset[at:at + self.size]) for at in range(0, len(self.dataset), self.size))
