"""Noughts and crosses: who has three in a line wins."""

from __future__ import annotations

from loadtest.kit.framework import BadRequest

CELLS = 9
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class Board:
    """`turn`: the seat that moves next, 0 or 1; `winner`: the seat that has won, if one has."""

    def __init__(self) -> None:
        self.turn = 0
        self.winner: int | None = None
        self._cells: list[int | None] = [None] * CELLS

    @property
    def is_over(self) -> bool:
        return self.winner is not None or None not in self._cells

    def move(self, seat: int, cell: int) -> None:
        """Raises: BadRequest."""
        if self.is_over:
            raise BadRequest("the game is over")
        if seat != self.turn:
            raise BadRequest("it is the other player's turn")
        if not 0 <= cell < CELLS or self._cells[cell] is not None:
            raise BadRequest(f"cell {cell} is not free")
        self._cells[cell] = seat
        self.turn = 1 - seat
        if any(all(self._cells[one] == seat for one in line) for line in LINES):
            self.winner = seat
