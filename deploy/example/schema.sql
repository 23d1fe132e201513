CREATE TABLE IF NOT EXISTS questions (
    id INTEGER PRIMARY KEY,
    author TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    time REAL NOT NULL  -- seconds since the epoch
);
CREATE INDEX IF NOT EXISTS questions_of_author ON questions (author);

CREATE TABLE IF NOT EXISTS tags (
    tag TEXT NOT NULL,
    question INTEGER NOT NULL REFERENCES questions (id),
    PRIMARY KEY (tag, question)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tags_of_question ON tags (question);

CREATE TABLE IF NOT EXISTS answers (
    id INTEGER PRIMARY KEY,
    question INTEGER NOT NULL REFERENCES questions (id),
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    time REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_of_question ON answers (question);
