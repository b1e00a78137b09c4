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
SELECT id, name AS "select" FROM products ORDER BY id
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
SELECT quantity NOT IN (1, 2), note IS NULL, note NOTNULL, total NOT BETWEEN 1 AND 2, status NOT LIKE 'o%' FROM orders ORDER BY id
SELECT strftime('%Y-%m', created_at) AS month, count(*) FROM orders GROUP BY month ORDER BY month
SELECT date(created_at, '-1 day'), julianday(shipped_at) - julianday(created_at) AS days FROM orders ORDER BY id
SELECT json_extract(details, '$.channel') AS channel, count(*) FROM orders GROUP BY channel ORDER BY channel
SELECT details ->> '$.channel' AS channel FROM orders ORDER BY id
SELECT p.name, t.value FROM products p, json_each(p.tags) t ORDER BY p.id, t.value
SELECT group_concat(name, ', ') FROM (SELECT name FROM products ORDER BY name)
SELECT name FROM products WHERE name GLOB 'T*' OR name LIKE 'a\_%' ESCAPE '\' ORDER BY name COLLATE NOCASE
SELECT iif(total > 50, 'yes', 'no'), ifnull(note, '-'), typeof(total) FROM orders ORDER BY id
SELECT count(*) FILTER (WHERE status = 'open') AS open FROM orders
SELECT printf('%05.1f', total), substr(status, 1, 2), instr(status, 'a') FROM orders ORDER BY id
SELECT rowid, id FROM orders ORDER BY rowid
SELECT id FROM orders ORDER BY total DESC NULLS LAST, id LIMIT 3, 2
SELECT total FROM orders WHERE note IS NOT DISTINCT FROM NULL ORDER BY id
SELECT X'4142', 1e3, .5, 1.5e-2, true, false, NULL
SELECT id FROM main.orders WHERE main.orders.total > 5 ORDER BY main.orders.id
SELECT [id], `total`, "status" FROM [orders] ORDER BY "id"
SELECT name || ' (' || city || ')' FROM customers ORDER BY id
SELECT substr('=====', 1, quantity) FROM orders ORDER BY id
SELECT VALUE FROM json_each('[3,1,2]') ORDER BY value
SELECT unixepoch(created_at) / 86400 AS day FROM orders ORDER BY id
SELECT max(total, 10), min(quantity, 2) FROM orders ORDER BY id
SELECT 7 & 2, 1 | 4, ~1, 10 / 4, 10 / 4.0
VALUES (1, 'a'), (2, 'b')
EXPLAIN QUERY PLAN SELECT * FROM orders WHERE id = 5
SELECT id FROM orders WHERE created_at >= datetime('2024-01-01', '+1 month') ORDER BY id
SELECT id, ntile(2) OVER (ORDER BY id) AS half, first_value(total) OVER (PARTITION BY status ORDER BY id) AS f FROM orders ORDER BY id
SELECT Name, EMAIL FROM Customers ORDER BY ID
SELECT customers.name FROM main.customers ORDER BY main.customers.id
