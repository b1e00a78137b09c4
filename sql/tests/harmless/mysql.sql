# Statements as analysts write them, one on each line, that must pass.
SELECT 1
SELECT * FROM orders
SELECT * FROM orders;
SELECT id, total FROM orders WHERE status = 'paid' AND total > 10 ORDER BY total DESC, id LIMIT 10
SELECT id, total FROM orders ORDER BY id LIMIT 10 OFFSET 5
SELECT DISTINCT status FROM orders ORDER BY status
SELECT status, count(*) AS n, sum(total) AS revenue FROM orders GROUP BY status HAVING count(*) > 1 ORDER BY revenue DESC
SELECT c.name, o.total FROM customers c JOIN orders o ON o.customer_id = c.id ORDER BY o.id
SELECT c.name, count(o.id) AS n FROM customers AS c LEFT JOIN orders AS o ON o.customer_id = c.id GROUP BY c.id, c.name ORDER BY n DESC, c.name
SELECT name FROM customers WHERE id IN (SELECT customer_id FROM orders WHERE total > 50) ORDER BY name
SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.status = 'open') ORDER BY c.name
SELECT name FROM customers WHERE email LIKE '%@example.org' OR city IS NULL ORDER BY name
SELECT o.id, CASE WHEN o.total >= 100 THEN 'big' WHEN o.total >= 20 THEN 'middle' ELSE 'small' END AS size FROM orders o ORDER BY o.id
WITH big AS (SELECT customer_id, sum(total) AS s FROM orders GROUP BY customer_id) SELECT c.name, big.s FROM big JOIN customers c ON c.id = big.customer_id ORDER BY big.s DESC, c.name
WITH orders AS (SELECT * FROM orders WHERE total > 20) SELECT orders.id FROM orders ORDER BY orders.id
WITH a AS (SELECT 1 AS x), b AS (SELECT x + 1 AS y FROM a) SELECT a.x, b.y FROM a, b
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT i FROM n ORDER BY i
WITH RECURSIVE tree AS (SELECT id, parent_id, name, 0 AS depth FROM products WHERE parent_id IS NULL UNION ALL SELECT p.id, p.parent_id, p.name, t.depth + 1 FROM products p JOIN tree t ON p.parent_id = t.id) SELECT id, depth FROM tree ORDER BY id
SELECT id, total, sum(total) OVER (PARTITION BY customer_id ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS running FROM orders ORDER BY id
SELECT id, row_number() OVER w AS r, lag(total) OVER w AS before FROM orders WINDOW w AS (PARTITION BY customer_id ORDER BY id) ORDER BY id
SELECT * FROM (SELECT id, rank() OVER (ORDER BY total DESC) AS place FROM orders) AS ranked WHERE place <= 3 ORDER BY place, id
SELECT status FROM orders UNION SELECT category FROM products ORDER BY 1
SELECT 'order' AS kind, id FROM orders UNION ALL SELECT 'product', id FROM products ORDER BY kind, id
SELECT id FROM products EXCEPT SELECT product_id FROM order_items ORDER BY id
SELECT upper(name) AS n, length(email) AS l, replace(city, 'a', 'b') AS c FROM customers ORDER BY n
SELECT coalesce(note, 'none') AS note, nullif(status, 'open') AS s, round(total * 1.19, 2) AS gross FROM orders ORDER BY id
SELECT p.category, avg(i.price * i.quantity) AS a FROM order_items i JOIN products p ON p.id = i.product_id GROUP BY p.category ORDER BY p.category
SELECT o.id, (SELECT sum(i.quantity) FROM order_items i WHERE i.order_id = o.id) AS items FROM orders o ORDER BY o.id
SELECT id FROM orders WHERE total BETWEEN 10 AND 50 AND NOT status = 'open' ORDER BY id
SELECT count(DISTINCT customer_id) FROM orders
SELECT a.name, b.name AS other FROM customers a JOIN customers b ON a.city = b.city AND a.id < b.id ORDER BY a.id, b.id
SELECT 'it''s', 'a -- no comment', 'a; b', '/* x */', 'ünïcode ✓'
SELECT -total, - - total, +1, 7 % 3, 2 * (3 + 4) FROM orders ORDER BY id
SELECT min(created_at), max(created_at) FROM orders -- the first and the last
SELECT /* all of them */ id FROM products ORDER BY id
SELECT name, total FROM customers, orders WHERE customers.id = orders.customer_id ORDER BY orders.id
SELECT * FROM orders NATURAL JOIN (SELECT 1 AS one) AS x ORDER BY id
SELECT * FROM order_items JOIN products USING (price) ORDER BY order_id, product_id
SELECT * FROM open_orders ORDER BY id
SELECT n.name FROM customer_names n ORDER BY n.id
SELECT status, count(*) FROM orders GROUP BY 1 ORDER BY 2 DESC, 1
SELECT total > 10 AND status <> 'open' AS flag FROM orders WHERE status != 'lost' ORDER BY id
SELECT CAST(total AS DECIMAL(10, 2)) FROM orders ORDER BY id
SELECT x.n FROM (SELECT count(*) AS n FROM orders) AS x
SELECT id FROM orders WHERE (status, quantity) IN (('open', 1), ('paid', 2)) ORDER BY id
SELECT concat(name, ' <', email, '>') FROM customers ORDER BY id
SELECT c.name, p.name AS product FROM customers c JOIN orders o ON o.customer_id = c.id JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id ORDER BY o.id, p.id
SELECT o.id, p.name FROM orders o LEFT JOIN order_items i ON i.order_id = o.id LEFT JOIN products p ON p.id = i.product_id INNER JOIN customers c ON c.id = o.customer_id CROSS JOIN (SELECT 1 AS one) AS x WHERE x.one = 1 ORDER BY o.id, p.id
SELECT o.id FROM orders o JOIN (customers c JOIN order_items i ON c.id = i.order_id) ON o.customer_id = c.id ORDER BY o.id
SELECT DATE_FORMAT(created_at, '%Y-%m') AS month, COUNT(*) FROM orders GROUP BY month ORDER BY month
SELECT * FROM orders WHERE created_at >= NOW() - INTERVAL 30 DAY
SELECT * FROM orders WHERE created_at >= DATE_SUB(CURDATE(), INTERVAL 1 MONTH) AND created_at < '2024-01-01'
SELECT TIMESTAMPDIFF(HOUR, created_at, shipped_at) AS h, DATEDIFF(shipped_at, created_at) FROM orders
SELECT YEAR(created_at), MONTH(created_at), DAYNAME(created_at), EXTRACT(QUARTER FROM created_at) FROM orders
SELECT JSON_EXTRACT(details, '$.channel'), details->>'$.channel', details->'$.a' FROM orders
SELECT JSON_UNQUOTE(JSON_EXTRACT(details, '$.a')) AS a FROM orders WHERE JSON_CONTAINS(details, '1', '$.b')
SELECT p.name, t.tag FROM products p, JSON_TABLE(p.tags, '$[*]' COLUMNS (tag VARCHAR(50) PATH '$')) AS t
SELECT GROUP_CONCAT(DISTINCT status ORDER BY status SEPARATOR ', ') FROM orders
SELECT IF(total > 50, 'yes', 'no'), IFNULL(note, '-'), ISNULL(note) FROM orders
SELECT status, customer_id, SUM(total) FROM orders GROUP BY status, customer_id WITH ROLLUP
SELECT name FROM customers WHERE name REGEXP '^a' OR name RLIKE 'b$' OR email LIKE 'a\_%'
SELECT `id`, `total` FROM `orders` WHERE `status` = "open" AND note = "it's"
SELECT 'it\'s', 'a\\b', "say \"hi\"", 'a' 'b', N'x', 'line\nbreak'
SELECT CONCAT_WS(', ', name, city), SUBSTRING_INDEX(email, '@', -1), LEFT(name, 3) FROM customers
SELECT id FROM orders LIMIT 5, 10
SELECT id FROM orders USE INDEX (PRIMARY) WHERE id > 5
SELECT STRAIGHT_JOIN o.id FROM orders o JOIN customers c ON c.id = o.customer_id
SELECT SQL_NO_CACHE id FROM orders
SELECT CAST(total AS SIGNED), CAST(id AS CHAR), CONVERT(total, DECIMAL(10,2)), CONVERT(name USING utf8mb4) FROM orders, customers
SELECT total DIV 10, total % 10, MOD(total, 10), 5 XOR 3, NOT 1, 1 && 0, 1 || 0 FROM orders
SELECT note <=> NULL FROM orders
SELECT name COLLATE utf8mb4_bin FROM customers ORDER BY name COLLATE utf8mb4_general_ci
SELECT id, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY created_at DESC) AS r FROM orders
SELECT * FROM products WHERE MATCH (name, description) AGAINST ('red shoes' IN BOOLEAN MODE)
SELECT o.id FROM shop.orders o WHERE o.total > 5
SELECT shop.orders.id FROM shop.orders
SELECT 0x4142, X'4142', b'101', 1e3, .5, TRUE, NULL
SELECT ADDDATE(created_at, INTERVAL 1 WEEK), LAST_DAY(created_at), STR_TO_DATE('2024-01-01', '%Y-%m-%d') FROM orders
SELECT DATE '2024-01-01', TIMESTAMP '2024-01-01 10:00:00', UNIX_TIMESTAMP(created_at) FROM orders
SELECT * FROM orders o LEFT JOIN LATERAL (SELECT i.price FROM order_items i WHERE i.order_id = o.id LIMIT 1) AS top ON TRUE
SELECT MD5(name), SHA2(name, 256), HEX(name), CHAR_LENGTH(name) FROM customers
SELECT REPEAT('#', quantity), LPAD(id, 8, '0') FROM orders
SELECT CASE status WHEN 'open' THEN 1 ELSE 0 END FROM orders
SELECT ELT(2, 'a', 'b'), FIELD(status, 'open', 'paid'), FIND_IN_SET('a', 'a,b') FROM orders
SELECT database(), version(), CURRENT_TIMESTAMP, CURRENT_DATE
SELECT COUNT(DISTINCT customer_id, status) FROM orders
SELECT Name FROM CUSTOMERS
VALUES ROW(1, 'a'), ROW(2, 'b')
EXPLAIN SELECT * FROM orders
EXPLAIN FORMAT=JSON SELECT * FROM orders
DESCRIBE orders
SHOW COLUMNS FROM orders
SELECT id, name AS `select` FROM products ORDER BY id
