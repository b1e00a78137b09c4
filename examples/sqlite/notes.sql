CREATE TABLE note (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    text TEXT NOT NULL,
    is_done INTEGER NOT NULL DEFAULT 0
);
INSERT INTO note (topic, text) VALUES ('garden', 'Water the tomatoes.'), ('garden', 'Buy seeds.'), ('house', 'Call the plumber.');
