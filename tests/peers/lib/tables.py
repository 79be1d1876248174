"""CSV files whose lines are there as soon as they are known."""

import csv


class Table:
    """A new file with these columns; None becomes an empty cell."""

    def __init__(self, path, columns):
        self.file = open(path, "w", newline="")
        self.writer = csv.DictWriter(self.file, columns, lineterminator="\r\n")
        self.writer.writeheader()

    def add(self, **values):
        self.writer.writerow({key: shown(value) for key, value in values.items()})
        self.file.flush()


def shown(value):
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else value
