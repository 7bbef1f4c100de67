"""What the conditions of one review's webhooks come to: each is judged once for each object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.core.conditions import Check, CheckAnswer, Unanswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.core.conditions import Judgement, MatchConditions, Question, Seen


class Judging:
    """Judgements by the webhook's place, and what has to be found out for them."""

    __slots__ = ("_answers", "_asked", "_found", "_questions")

    def __init__(self) -> None:
        self._found: dict[int, Judgement] = {}
        self._answers: dict[Check, CheckAnswer] = {}
        self._asked: set[Question] = set()
        self._questions: list[Question] = []

    @property
    def has_questions(self) -> bool:
        """Whether questions came up since they were last taken."""
        return bool(self._questions)

    def judge(self, place: int, conditions: MatchConditions, seen: Seen) -> Judgement:
        """Return what *conditions* make of *seen*, the object as it is now; None: they are all true."""
        if place not in self._found:
            self._find(place, conditions.judge(seen, self._answers))
        return self._found[place]

    def take_questions(self) -> Sequence[Question]:
        """Return the questions that came up since this was last asked; none comes up twice."""
        questions, self._questions = self._questions, []
        return questions

    def learn(self, question: Question, answer: CheckAnswer | Judgement) -> Sequence[int]:
        """Take an answer, which holds from now on, and return the places that waited for one."""
        if isinstance(question, Check):
            assert isinstance(answer, CheckAnswer)
            self._answers[question] = answer
        waiting = [place for place, found in self._found.items() if isinstance(found, Unanswered)]
        for place in waiting:
            found = self._found[place]
            assert isinstance(found, Unanswered)
            if found.work is question:
                assert not isinstance(answer, CheckAnswer)
                self._find(place, answer)
            elif found.work is None:
                del self._found[place]
        return waiting

    def forget(self) -> None:
        """Judge anew: the object has changed."""
        self._found.clear()

    def _find(self, place: int, judgement: Judgement) -> None:
        self._found[place] = judgement
        if isinstance(judgement, Unanswered):
            work = () if judgement.work is None else (judgement.work,)
            self._questions += [one for one in (*judgement.checks, *work) if one not in self._asked]
            self._asked.update(judgement.checks, work)
