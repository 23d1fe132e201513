// How Sphinx ranks what it finds. The numbers are its own, but pages for users come before those about the inside: who
// looks for "cursor" wants to use one. (Sphinx takes an object of this name instead of its own.)
const USERS = { guide: 12, operate: 10, start: 8 };

var Scorer = {
  score: ([page, , , , score]) => score + (USERS[page.split("/")[0]] ?? 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
