# Ways to reach the hidden columns `password_hash` and `api_token` of `customers`, one on each line. Each is refused, or
# no row of what is sent holds a hidden value: the tests store values that contain `hidden-value`.
SELECT password_hash FROM customers
SELECT c.password_hash FROM customers c
SELECT customers.password_hash FROM customers
SELECT "PASSWORD_HASH" FROM customers
SELECT * FROM customers
SELECT customers.* FROM customers
SELECT c.* FROM customers c
SELECT * FROM customers c JOIN orders o ON o.customer_id = c.id
SELECT * FROM customers NATURAL JOIN orders
SELECT * FROM customers a JOIN customers b USING (password_hash)
SELECT a.id FROM customers a JOIN customers b USING (api_token)
SELECT * FROM (SELECT * FROM customers) AS x
SELECT x.password_hash FROM (SELECT * FROM customers) AS x
SELECT * FROM (SELECT * FROM (SELECT * FROM customers) AS x) AS y
WITH x AS (SELECT * FROM customers) SELECT * FROM x
WITH x AS (SELECT * FROM customers) SELECT password_hash FROM x
WITH customers AS (SELECT * FROM customers) SELECT * FROM customers
WITH customers AS (SELECT * FROM customers) SELECT password_hash FROM customers
WITH customers AS (SELECT 1 AS password_hash) SELECT * FROM (SELECT 1 AS one) AS t WHERE EXISTS (SELECT password_hash FROM customers)
WITH x(a, b, c, d, e, f, g, h, i) AS (SELECT * FROM customers) SELECT g FROM x
WITH x(a, b, c, d, e, f, g) AS (SELECT * FROM customers) SELECT g FROM x
SELECT g FROM customers AS x(a, b, c, d, e, f, g, h, i)
SELECT (SELECT password_hash FROM customers WHERE id = 1)
SELECT (SELECT c.password_hash) FROM customers c
SELECT id FROM customers WHERE password_hash LIKE '$2%'
SELECT id FROM customers WHERE length(password_hash) > 5
SELECT id FROM customers WHERE EXISTS (SELECT 1 FROM customers c WHERE c.password_hash = customers.password_hash)
SELECT id FROM customers WHERE id IN (SELECT id FROM customers WHERE password_hash > 'a')
SELECT id FROM customers ORDER BY password_hash
SELECT count(*) FROM customers GROUP BY password_hash
SELECT id FROM customers GROUP BY id HAVING max(password_hash) > 'a'
SELECT max(password_hash) FROM customers
SELECT count(DISTINCT password_hash) FROM customers
SELECT row_number() OVER (ORDER BY password_hash) FROM customers
SELECT first_value(password_hash) OVER (ORDER BY id) FROM customers
SELECT sum(id) OVER w FROM customers WINDOW w AS (PARTITION BY password_hash)
SELECT CASE WHEN password_hash LIKE 'a%' THEN 1 ELSE 0 END FROM customers
SELECT o.id FROM orders o JOIN customers c ON c.password_hash = o.note
SELECT o.id FROM orders o LEFT JOIN customers c ON o.note = c.api_token
SELECT note FROM orders UNION SELECT password_hash FROM customers
SELECT note FROM orders UNION ALL SELECT api_token FROM customers
SELECT id, name, email, city, country, created_at, password_hash FROM customers EXCEPT SELECT * FROM customers
SELECT * FROM customers UNION SELECT 1, 2, 3, 4, 5, 6, 7, 8, 9
SELECT * FROM customer_secrets
SELECT p FROM customer_secrets
SELECT * FROM customer_copies
SELECT password_hash FROM customer_copies
SELECT * FROM secret_lengths
SELECT s.p FROM customer_names n JOIN customer_secrets s ON s.id = n.id
SELECT upper(api_token) FROM customers
SELECT concat(name, password_hash) FROM customers
SELECT coalesce(password_hash, '') FROM customers
SELECT CAST(password_hash AS CHAR(10)) FROM customers
SELECT substr(password_hash, 1, 1) FROM customers
SELECT id, (SELECT count(*) FROM orders WHERE note < customers.password_hash) FROM customers
SELECT id FROM customers WHERE (id, password_hash) IN (SELECT 1, 'x')
SELECT id FROM customers WHERE password_hash IS NOT NULL
SELECT id FROM customers WHERE password_hash BETWEEN 'a' AND 'b'
EXPLAIN SELECT * FROM customers WHERE password_hash = 'x'
SELECT c.id AS password_hash, c.password_hash FROM customers c
WITH RECURSIVE x AS (SELECT password_hash AS v FROM customers UNION ALL SELECT v FROM x WHERE 1 = 0) SELECT v FROM x
SELECT id FROM customers LIMIT (SELECT length(password_hash) FROM customers LIMIT 1)
SELECT `password_hash` FROM customers
SELECT Password_Hash FROM Customers
SELECT shop.customers.password_hash FROM shop.customers
SELECT customers.`password_hash` FROM `customers`
SELECT JSON_ARRAYAGG(password_hash) FROM customers
SELECT JSON_OBJECT('a', api_token) FROM customers
SELECT GROUP_CONCAT(password_hash) FROM customers
SELECT t.v FROM customers c, JSON_TABLE(JSON_ARRAY(c.password_hash), '$[*]' COLUMNS (v TEXT PATH '$')) AS t
SELECT x.* FROM customers c, LATERAL (SELECT c.password_hash) AS x
SELECT id FROM customers WHERE MATCH (password_hash) AGAINST ('x')
SELECT id FROM customers USE INDEX (password_hash) WHERE password_hash = 'x'
SELECT STRCMP(password_hash, 'a') FROM customers
SELECT IF(password_hash LIKE 'a%', 1, 0) FROM customers
SELECT id FROM customers WHERE password_hash REGEXP '^a'
SELECT CONVERT(password_hash USING utf8mb4) FROM customers
SELECT password_hash COLLATE utf8mb4_bin FROM customers
SELECT BINARY password_hash FROM customers
SELECT pässword_hash FROM customers
SELECT DEFAULT(password_hash) FROM customers
SELECT ANY_VALUE(password_hash) FROM customers
