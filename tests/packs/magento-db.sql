-- The tables of a Magento 2.4 shop that the pack reads, as its db_schema.xml files declare them, without most of the
-- columns that nothing here uses, and with 100,000 customers and orders.

CREATE TABLE store_website (website_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, code VARCHAR(32), name VARCHAR(64),
  sort_order SMALLINT UNSIGNED NOT NULL DEFAULT 0, default_group_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, is_default SMALLINT UNSIGNED DEFAULT 0);
CREATE TABLE store_group (group_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, website_id SMALLINT UNSIGNED NOT NULL, name VARCHAR(255) NOT NULL,
  root_category_id INT UNSIGNED NOT NULL DEFAULT 0, default_store_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, code VARCHAR(32));
CREATE TABLE store (store_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, code VARCHAR(32), website_id SMALLINT UNSIGNED NOT NULL,
  group_id SMALLINT UNSIGNED NOT NULL, name VARCHAR(255) NOT NULL, sort_order SMALLINT UNSIGNED NOT NULL DEFAULT 0, is_active SMALLINT UNSIGNED NOT NULL DEFAULT 0);
INSERT INTO store_website VALUES (0, 'admin', 'Admin', 0, 0, 0), (1, 'base', 'Main Website', 0, 1, 1);
INSERT INTO store_group VALUES (0, 0, 'Default', 0, 0, 'default'), (1, 1, 'Main Website Store', 2, 1, 'main_website_store');
INSERT INTO store VALUES (0, 'admin', 0, 0, 'Admin', 0, 1), (1, 'default', 1, 1, 'English', 0, 1), (2, 'de', 1, 1, 'Deutsch', 1, 1), (3, 'fr', 1, 1, 'Français', 2, 0);

CREATE TABLE core_config_data (config_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, scope VARCHAR(8) NOT NULL DEFAULT 'default',
  scope_id INT NOT NULL DEFAULT 0, path VARCHAR(255) NOT NULL DEFAULT 'general', value TEXT, updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  UNIQUE (scope, scope_id, path));
INSERT INTO core_config_data (scope, scope_id, path, value) VALUES
  ('default', 0, 'web/unsecure/base_url', 'http://shop.example.com/'), ('default', 0, 'web/secure/base_url', 'https://shop.example.com/'),
  ('default', 0, 'general/locale/code', 'en_US'), ('stores', 2, 'general/locale/code', 'de_DE'), ('default', 0, 'general/locale/timezone', 'Europe/Berlin'),
  ('default', 0, 'currency/options/base', 'EUR'), ('default', 0, 'payment/checkmo/active', '1'), ('default', 0, 'payment/paypal_express/active', '0'),
  ('default', 0, 'payment/acme/api_key', 'plain-key-of-acme'), ('default', 0, 'payment/acme/merchant_id', '0:3:c2VjcmV0LW9mLWFjbWU='),
  ('default', 0, 'system/smtp/password', 'hunter2-of-the-mail'), ('default', 0, 'carriers/flatrate/active', '1');

CREATE TABLE setup_module (module VARCHAR(50) NOT NULL PRIMARY KEY, schema_version VARCHAR(50), data_version VARCHAR(50));
INSERT INTO setup_module VALUES ('Magento_Store', '2.1.0', '2.1.0'), ('Magento_Sales', '2.0.14', '2.0.14'), ('Magento_Catalog', '2.2.8', '2.2.8'), ('Acme_Shop', '1.0.0', '1.0.0');

CREATE TABLE customer_group (customer_group_id INT UNSIGNED NOT NULL PRIMARY KEY, customer_group_code VARCHAR(32) NOT NULL, tax_class_id INT UNSIGNED NOT NULL DEFAULT 0);
INSERT INTO customer_group VALUES (0, 'NOT LOGGED IN', 3), (1, 'General', 3), (2, 'Wholesale', 3), (3, 'Retailer', 3);

CREATE TABLE customer_entity (entity_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, website_id SMALLINT UNSIGNED, email VARCHAR(255),
  group_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, increment_id VARCHAR(50), store_id SMALLINT UNSIGNED DEFAULT 0,
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  is_active SMALLINT UNSIGNED NOT NULL DEFAULT 1, firstname VARCHAR(255), lastname VARCHAR(255), dob DATE, password_hash VARCHAR(128),
  rp_token VARCHAR(128), rp_token_created_at DATETIME, default_billing INT UNSIGNED, default_shipping INT UNSIGNED, taxvat VARCHAR(50),
  confirmation VARCHAR(64), gender SMALLINT UNSIGNED, UNIQUE (email, website_id), KEY (website_id), KEY (firstname), KEY (lastname));
INSERT INTO customer_entity (entity_id, website_id, email, group_id, store_id, created_at, is_active, firstname, lastname, password_hash)
  SELECT seq, 1, CONCAT('c', seq, '@example.com'), seq % 3 + 1, 1,
    CASE WHEN seq <= 700 THEN UTC_TIMESTAMP() - INTERVAL 3 DAY ELSE TIMESTAMP'2020-01-01 00:00:00' + INTERVAL seq MINUTE END,
    seq % 1000 <> 0, CASE WHEN seq = 4711 THEN 'Jürgen' ELSE 'Ann' END, CASE WHEN seq = 4711 THEN 'Müller' ELSE CONCAT('Lee', seq) END, 'hash-of-a-password'
  FROM seq_1_to_100000;

-- One order for each customer: 300 days of 2026, at 23:30, so that the day depends on the time zone.
CREATE TABLE sales_order (entity_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, state VARCHAR(32), status VARCHAR(32), coupon_code VARCHAR(255),
  protect_code VARCHAR(255), store_id SMALLINT UNSIGNED, customer_id INT UNSIGNED, base_grand_total DECIMAL(20, 4), base_total_paid DECIMAL(20, 4),
  base_total_refunded DECIMAL(20, 4), grand_total DECIMAL(20, 4), total_paid DECIMAL(20, 4), total_refunded DECIMAL(20, 4),
  total_qty_ordered DECIMAL(20, 4), customer_is_guest SMALLINT UNSIGNED, customer_group_id INT, increment_id VARCHAR(50),
  base_currency_code VARCHAR(3), order_currency_code VARCHAR(3), customer_email VARCHAR(128), customer_firstname VARCHAR(128),
  customer_lastname VARCHAR(128), remote_ip VARCHAR(45), store_name VARCHAR(255), created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, total_item_count SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  UNIQUE (increment_id, store_id), KEY (status), KEY (state), KEY (store_id), KEY (created_at), KEY (customer_id));
INSERT INTO sales_order (entity_id, state, status, store_id, customer_id, base_grand_total, base_total_refunded, grand_total, total_paid, increment_id,
    base_currency_code, order_currency_code, customer_email, customer_firstname, customer_lastname, created_at, total_item_count)
  SELECT seq, ELT(seq % 10 + 1, 'canceled', 'new', 'processing', 'closed', 'complete', 'complete', 'complete', 'complete', 'complete', 'complete'),
    ELT(seq % 10 + 1, 'canceled', 'pending', 'processing', 'closed', 'complete', 'complete', 'complete', 'complete', 'complete', 'complete'),
    seq % 2 + 1, seq, 10 + seq % 100, CASE WHEN seq % 10 = 3 THEN 10 + seq % 100 END, 10 + seq % 100, 10 + seq % 100, LPAD(seq, 9, '0'),
    'EUR', 'EUR', CONCAT('c', seq, '@example.com'), CASE WHEN seq = 4711 THEN 'Jürgen' ELSE 'Ann' END, CASE WHEN seq = 4711 THEN 'Müller' ELSE CONCAT('Lee', seq) END,
    TIMESTAMP'2026-01-01 23:30:00' + INTERVAL seq % 300 DAY, 1
  FROM seq_1_to_100000;

-- A configurable product is two items: the parent has the sums, the child is what was packed.
CREATE TABLE sales_order_item (item_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, order_id INT UNSIGNED NOT NULL DEFAULT 0, parent_item_id INT UNSIGNED,
  store_id SMALLINT UNSIGNED, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, product_id INT UNSIGNED, product_type VARCHAR(255), sku VARCHAR(255),
  name VARCHAR(255), qty_canceled DECIMAL(12, 4) DEFAULT 0, qty_ordered DECIMAL(12, 4) DEFAULT 0, qty_refunded DECIMAL(12, 4) DEFAULT 0,
  base_row_total DECIMAL(20, 4) NOT NULL DEFAULT 0, base_discount_amount DECIMAL(20, 4) DEFAULT 0, base_amount_refunded DECIMAL(20, 4) DEFAULT 0, KEY (order_id));
INSERT INTO sales_order_item (item_id, order_id, store_id, product_id, product_type, sku, name, qty_ordered, qty_refunded, base_row_total, base_discount_amount)
  SELECT seq, seq, seq % 2 + 1, seq % 200 + 1, 'configurable', CONCAT('sku-', seq % 200 + 1), CONCAT('Product ', seq % 200 + 1),
    CASE WHEN seq % 200 = 7 THEN 3 ELSE 1 END, 0, CASE WHEN seq % 200 = 8 THEN 50 ELSE 10 END, 1
  FROM seq_1_to_100000;
INSERT INTO sales_order_item (item_id, order_id, parent_item_id, store_id, product_id, product_type, sku, name, qty_ordered)
  SELECT seq + 100000, seq, seq, seq % 2 + 1, seq % 200 + 1, 'simple', CONCAT('sku-', seq % 200 + 1), CONCAT('Product ', seq % 200 + 1), 5 FROM seq_1_to_100000;

CREATE TABLE eav_entity_type (entity_type_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, entity_type_code VARCHAR(50) NOT NULL);
CREATE TABLE eav_attribute (attribute_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, entity_type_id SMALLINT UNSIGNED NOT NULL, attribute_code VARCHAR(255) NOT NULL,
  backend_type VARCHAR(8) NOT NULL DEFAULT 'static', frontend_label VARCHAR(255));
INSERT INTO eav_entity_type VALUES (3, 'catalog_category'), (4, 'catalog_product');
INSERT INTO eav_attribute VALUES (45, 3, 'name', 'varchar', 'Name'), (46, 3, 'is_active', 'int', 'Enable Category'), (73, 4, 'name', 'varchar', 'Product Name'),
  (77, 4, 'price', 'decimal', 'Price'), (97, 4, 'status', 'int', 'Enable Product');
CREATE TABLE catalog_product_entity (entity_id INT UNSIGNED NOT NULL PRIMARY KEY, attribute_set_id SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  type_id VARCHAR(32) NOT NULL DEFAULT 'simple', sku VARCHAR(64) NOT NULL, has_options SMALLINT NOT NULL DEFAULT 0, required_options SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, KEY (sku));
CREATE TABLE catalog_product_entity_varchar (value_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, attribute_id SMALLINT UNSIGNED NOT NULL,
  store_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, entity_id INT UNSIGNED NOT NULL, value VARCHAR(255), UNIQUE (entity_id, attribute_id, store_id));
CREATE TABLE catalog_product_entity_int (value_id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, attribute_id SMALLINT UNSIGNED NOT NULL,
  store_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, entity_id INT UNSIGNED NOT NULL, value INT, UNIQUE (entity_id, attribute_id, store_id));
INSERT INTO catalog_product_entity (entity_id, type_id, sku) SELECT seq, CASE WHEN seq % 10 = 0 THEN 'configurable' ELSE 'simple' END, CONCAT('sku-', seq) FROM seq_1_to_200;
INSERT INTO catalog_product_entity_varchar (attribute_id, store_id, entity_id, value) SELECT 73, 0, seq, CONCAT('Product ', seq) FROM seq_1_to_200;
INSERT INTO catalog_product_entity_varchar (attribute_id, store_id, entity_id, value) SELECT 73, 2, seq, CONCAT('Produkt ', seq) FROM seq_1_to_200;
INSERT INTO catalog_product_entity_int (attribute_id, store_id, entity_id, value) SELECT 97, 0, seq, CASE WHEN seq % 50 = 1 THEN 2 ELSE 1 END FROM seq_1_to_200;

CREATE TABLE inventory_source_item (source_item_id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, source_code VARCHAR(255) NOT NULL, sku VARCHAR(64) NOT NULL,
  quantity DECIMAL(12, 4) NOT NULL DEFAULT 0, status SMALLINT UNSIGNED NOT NULL DEFAULT 0, UNIQUE (source_code, sku));
INSERT INTO inventory_source_item (source_code, sku, quantity, status) SELECT 'default', CONCAT('sku-', seq), seq % 50, seq % 50 > 0 FROM seq_1_to_200 WHERE seq % 10 <> 0;

CREATE TABLE quote (entity_id INT UNSIGNED NOT NULL PRIMARY KEY, store_id SMALLINT UNSIGNED NOT NULL DEFAULT 0, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  is_active SMALLINT UNSIGNED DEFAULT 1, items_count INT UNSIGNED DEFAULT 0, customer_id INT UNSIGNED, remote_ip VARCHAR(45));
INSERT INTO quote (entity_id, store_id, is_active, items_count) SELECT seq, 1, seq <= 40, 1 FROM seq_1_to_100;
CREATE TABLE admin_user (user_id INT UNSIGNED NOT NULL PRIMARY KEY, email VARCHAR(128), username VARCHAR(40), password VARCHAR(255) NOT NULL);
INSERT INTO admin_user VALUES (1, 'root@example.com', 'root', 'hash-of-a-password');
