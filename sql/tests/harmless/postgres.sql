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
SELECT date_trunc('month', created_at) AS month, count(*) FROM orders GROUP BY 1 ORDER BY 1
SELECT created_at::date AS day, sum(total)::numeric(12,2) FROM orders GROUP BY created_at::date ORDER BY day
SELECT * FROM orders WHERE created_at >= now() - interval '30 days'
SELECT * FROM orders WHERE created_at > current_date - INTERVAL '1 month' AND created_at < DATE '2024-01-01'
SELECT extract(year FROM created_at) AS y, extract(epoch FROM shipped_at - created_at) FROM orders
SELECT date_part('dow', created_at), to_char(created_at, 'YYYY-MM') FROM orders
SELECT age(shipped_at, created_at) FROM orders
SELECT created_at AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' FROM orders
SELECT details->>'channel' AS channel, count(*) FROM orders GROUP BY 1
SELECT details #>> '{a,b}', details->'a'->0, details @> '{"a": 1}', details ? 'a', details ?| array['a','b'] FROM orders
SELECT p.name, t.tag FROM products p CROSS JOIN LATERAL jsonb_array_elements_text(p.tags) AS t(tag)
SELECT * FROM orders o LEFT JOIN LATERAL (SELECT i.price FROM order_items i WHERE i.order_id = o.id ORDER BY i.price DESC LIMIT 1) AS top ON true
SELECT jsonb_build_object('id', id, 'total', total) FROM orders
SELECT json_agg(o ORDER BY o.id) FROM orders o
SELECT array_agg(DISTINCT status ORDER BY status) FROM orders
SELECT string_agg(name, ', ' ORDER BY name) FROM customers
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY total) FROM orders
SELECT count(*) FILTER (WHERE status = 'open') AS open, count(*) FROM orders
SELECT status, date_trunc('day', created_at), sum(total) FROM orders GROUP BY GROUPING SETS ((status), (date_trunc('day', created_at)), ())
SELECT status, customer_id, sum(total), grouping(status) FROM orders GROUP BY ROLLUP (status, customer_id)
SELECT status, customer_id, sum(total) FROM orders GROUP BY CUBE (status, customer_id)
SELECT DISTINCT ON (customer_id) customer_id, id, total FROM orders ORDER BY customer_id, created_at DESC
SELECT name FROM customers WHERE name ~* '^a' OR email ILIKE '%@example.org' OR city SIMILAR TO '(A|B)%'
SELECT name FROM customers WHERE city = ANY(ARRAY['Berlin', 'Rome']) AND id <> ALL('{1,2}'::int[])
SELECT d::date FROM generate_series('2024-01-01'::date, '2024-12-01'::date, interval '1 month') AS d
SELECT g.n, count(o.id) FROM generate_series(1, 12) AS g(n) LEFT JOIN orders o ON extract(month FROM o.created_at) = g.n GROUP BY g.n
SELECT unnest(ARRAY[1, 2, 3]) AS n
SELECT * FROM unnest(ARRAY['a', 'b'], ARRAY[1, 2]) WITH ORDINALITY AS u(a, b, n)
SELECT (ARRAY[1, 2, 3])[2], (string_to_array('a,b', ','))[1], ARRAY[1,2,3,4] && ARRAY[1]
SELECT ARRAY(SELECT id FROM orders ORDER BY id)
SELECT name COLLATE "C" FROM customers ORDER BY name COLLATE "de_DE" NULLS FIRST
SELECT id FROM orders ORDER BY total DESC NULLS LAST FETCH FIRST 5 ROWS ONLY
SELECT id FROM orders LIMIT ALL
SELECT position('a' IN name), substring(name FROM 1 FOR 3), trim(both 'x' from name), overlay(name placing 'zz' from 1 for 2) FROM customers
SELECT regexp_replace(name, '[aeiou]', '', 'g'), split_part(email, '@', 2), initcap(name) FROM customers
SELECT * FROM (VALUES (1, 'one'), (2, 'two')) AS v(n, word)
SELECT x.a, y.b FROM (SELECT 1 AS a) x FULL OUTER JOIN (SELECT 2 AS b) y ON x.a = y.b
SELECT E'line\nbreak', U&'\0041', $$dollar 'quoted'$$, $tag$x$tag$, 'back\slash', B'101', X'1F'
SELECT o.* FROM public.orders AS o WHERE o.note IS NOT DISTINCT FROM NULL
SELECT public.orders.id FROM public.orders
SELECT c FROM customers c
SELECT row_to_json(c) FROM customers c
SELECT to_jsonb(o) - 'note' FROM orders o
SELECT to_tsvector('english', description) @@ plainto_tsquery('red shoes') FROM products
SELECT width_bucket(total, 0, 100, 10) AS bucket, count(*) FROM orders GROUP BY bucket ORDER BY bucket
SELECT repeat('#', (count(*) / 10)::int) FROM orders
SELECT lpad(id::text, 8, '0') FROM orders
SELECT sum(total) OVER (ORDER BY created_at RANGE BETWEEN '7 days' PRECEDING AND CURRENT ROW) FROM orders
SELECT corr(total, quantity), stddev_samp(total), mode() WITHIN GROUP (ORDER BY status) FROM orders
SELECT id FROM orders TABLESAMPLE SYSTEM (10)
SELECT current_date, now(), version(), current_database(), gen_random_uuid()
SELECT id FROM orders WHERE (created_at, shipped_at) OVERLAPS (DATE '2024-01-01', DATE '2024-02-01')
SELECT make_interval(days => 10)
WITH m AS MATERIALIZED (SELECT * FROM orders) SELECT count(*) FROM m
SELECT pg_catalog.lower(name) FROM customers
VALUES (1, 'a'), (2, 'b') ORDER BY 1
EXPLAIN SELECT * FROM orders
EXPLAIN (COSTS OFF, FORMAT JSON) SELECT * FROM orders
SHOW server_version
SHOW timezone
