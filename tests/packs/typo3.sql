-- The tables of a TYPO3 13 website that the pack reads, as its ext_tables.sql files and the fields of its TCA make them,
-- without most of the columns that nothing here uses. MariaDB and SQLite both understand it.

CREATE TABLE pages (uid INTEGER NOT NULL PRIMARY KEY, pid INTEGER NOT NULL DEFAULT 0, tstamp INTEGER NOT NULL DEFAULT 0, crdate INTEGER NOT NULL DEFAULT 0,
  deleted SMALLINT NOT NULL DEFAULT 0, hidden SMALLINT NOT NULL DEFAULT 0, starttime INTEGER NOT NULL DEFAULT 0, endtime INTEGER NOT NULL DEFAULT 0,
  fe_group VARCHAR(255) NOT NULL DEFAULT '0', sorting INTEGER NOT NULL DEFAULT 0, sys_language_uid INTEGER NOT NULL DEFAULT 0, l10n_parent INTEGER NOT NULL DEFAULT 0,
  t3ver_oid INTEGER NOT NULL DEFAULT 0, t3ver_wsid INTEGER NOT NULL DEFAULT 0, t3ver_state SMALLINT NOT NULL DEFAULT 0,
  doktype INTEGER NOT NULL DEFAULT 1, title VARCHAR(255) NOT NULL DEFAULT '', slug TEXT, nav_title VARCHAR(255) NOT NULL DEFAULT '', subtitle VARCHAR(255) NOT NULL DEFAULT '',
  nav_hide SMALLINT NOT NULL DEFAULT 0, is_siteroot SMALLINT NOT NULL DEFAULT 0, author VARCHAR(255) NOT NULL DEFAULT '', author_email VARCHAR(255) NOT NULL DEFAULT '', TSconfig TEXT);
INSERT INTO pages (uid, pid, title, slug, doktype, sorting, hidden, deleted, is_siteroot, sys_language_uid, l10n_parent, t3ver_wsid, t3ver_oid, author_email) VALUES
  (1, 0, 'Home', '/', 1, 256, 0, 0, 1, 0, 0, 0, 0, 'boss@example.com'),
  (2, 1, 'About us', '/about-us', 1, 256, 0, 0, 0, 0, 0, 0, 0, ''),
  (3, 1, 'Products', '/products', 1, 128, 0, 0, 0, 0, 0, 0, 0, ''),
  (4, 1, 'Secret plans', '/plans', 1, 512, 1, 0, 0, 0, 0, 0, 0, ''),
  (5, 3, 'Bags', '/products/bags', 1, 256, 0, 0, 0, 0, 0, 0, 0, ''),
  (6, 3, 'Hats', '/products/hats', 1, 512, 0, 1, 0, 0, 0, 0, 0, ''),
  (7, 6, 'Winter hats', '/products/hats/winter', 1, 256, 0, 0, 0, 0, 0, 0, 0, ''),
  (8, 0, 'Records', '', 254, 512, 0, 0, 0, 0, 0, 0, 0, ''),
  (9, 1, 'Über uns', '/ueber-uns', 1, 256, 0, 0, 0, 1, 2, 0, 0, ''),
  (10, 1, 'About us (draft)', '/about-us', 1, 256, 0, 0, 0, 0, 0, 1, 2, ''),
  (11, 5, 'Small bags', '/products/bags/small', 1, 256, 0, 0, 0, 0, 0, 0, 0, '');

CREATE TABLE tt_content (uid INTEGER NOT NULL PRIMARY KEY, pid INTEGER NOT NULL DEFAULT 0, tstamp INTEGER NOT NULL DEFAULT 0, crdate INTEGER NOT NULL DEFAULT 0,
  deleted SMALLINT NOT NULL DEFAULT 0, hidden SMALLINT NOT NULL DEFAULT 0, starttime INTEGER NOT NULL DEFAULT 0, endtime INTEGER NOT NULL DEFAULT 0,
  sorting INTEGER NOT NULL DEFAULT 0, sys_language_uid INTEGER NOT NULL DEFAULT 0, l18n_parent INTEGER NOT NULL DEFAULT 0,
  t3ver_oid INTEGER NOT NULL DEFAULT 0, t3ver_wsid INTEGER NOT NULL DEFAULT 0, t3ver_state SMALLINT NOT NULL DEFAULT 0,
  CType VARCHAR(255) NOT NULL DEFAULT '', header VARCHAR(255) NOT NULL DEFAULT '', bodytext TEXT, colPos INTEGER NOT NULL DEFAULT 0, list_type VARCHAR(255) NOT NULL DEFAULT '');
INSERT INTO tt_content (uid, pid, CType, header, bodytext, colPos, sorting, hidden, deleted, sys_language_uid, tstamp, t3ver_wsid) VALUES
  (1, 2, 'text', 'Second', '<p>We make bags.</p>', 0, 512, 0, 0, 0, 1767225600, 0),
  (2, 2, 'header', 'First', NULL, 0, 256, 0, 0, 0, 1767225600, 0),
  (3, 2, 'text', 'Hidden', 'Not yet', 0, 768, 1, 0, 0, 1767225600, 0),
  (4, 2, 'text', 'Deleted', 'Gone', 0, 1024, 0, 1, 0, 1767225600, 0),
  (5, 2, 'text', 'Aside', 'Left', 1, 256, 0, 0, 0, 1767225600, 0),
  (6, 2, 'text', 'Zweiter', 'Wir machen Taschen.', 0, 512, 0, 0, 1, 1767225600, 0),
  (7, 2, 'text', 'Draft', 'Draft', 0, 300, 0, 0, 0, 1767225600, 1),
  (8, 6, 'text', 'Below a deleted page', 'x', 0, 256, 0, 0, 0, 1767225600, 0);

CREATE TABLE be_users (uid INTEGER NOT NULL PRIMARY KEY, pid INTEGER NOT NULL DEFAULT 0, tstamp INTEGER NOT NULL DEFAULT 0, crdate INTEGER NOT NULL DEFAULT 0,
  deleted SMALLINT NOT NULL DEFAULT 0, disable SMALLINT NOT NULL DEFAULT 0, starttime INTEGER NOT NULL DEFAULT 0, endtime INTEGER NOT NULL DEFAULT 0,
  username VARCHAR(50) NOT NULL DEFAULT '', password VARCHAR(255) NOT NULL DEFAULT '', admin SMALLINT NOT NULL DEFAULT 0, usergroup TEXT, lang VARCHAR(10) NOT NULL DEFAULT 'default',
  email VARCHAR(255) NOT NULL DEFAULT '', realName VARCHAR(80) NOT NULL DEFAULT '', mfa TEXT, uc TEXT, lastlogin INTEGER NOT NULL DEFAULT 0);
INSERT INTO be_users (uid, crdate, deleted, disable, username, password, admin, usergroup, email, realName, mfa, lastlogin) VALUES
  (1, 1767225600, 0, 0, 'root', 'hash-of-a-password', 1, '', 'root@example.com', 'Ann Lee', 'mfa-of-root', 1767312000),
  (2, 1767225600, 0, 0, 'editor', 'hash-of-a-password', 0, '1,2', 'editor@example.com', 'Bob Ray', NULL, 0),
  (3, 1767225600, 0, 1, 'former', 'hash-of-a-password', 0, '1', 'former@example.com', 'Cy Fox', NULL, 0),
  (4, 1767225600, 1, 0, 'gone', 'hash-of-a-password', 1, '', 'gone@example.com', 'Di Orr', NULL, 0);

CREATE TABLE be_groups (uid INTEGER NOT NULL PRIMARY KEY, pid INTEGER NOT NULL DEFAULT 0, tstamp INTEGER NOT NULL DEFAULT 0, crdate INTEGER NOT NULL DEFAULT 0,
  deleted SMALLINT NOT NULL DEFAULT 0, hidden SMALLINT NOT NULL DEFAULT 0, description TEXT, title VARCHAR(50) NOT NULL DEFAULT '', subgroup TEXT, tables_select TEXT, tables_modify TEXT);
INSERT INTO be_groups (uid, deleted, hidden, description, title, subgroup, tables_modify) VALUES
  (1, 0, 0, 'Write texts', 'Editors', '2', 'pages,tt_content'), (2, 0, 1, NULL, 'Translators', '', ''), (3, 1, 0, NULL, 'Old', '', '');

CREATE TABLE sys_log (uid INTEGER NOT NULL PRIMARY KEY, tstamp INTEGER NOT NULL DEFAULT 0, userid INTEGER NOT NULL DEFAULT 0, action SMALLINT NOT NULL DEFAULT 0,
  recuid INTEGER NOT NULL DEFAULT 0, tablename VARCHAR(255) NOT NULL DEFAULT '', recpid INTEGER NOT NULL DEFAULT 0, error SMALLINT NOT NULL DEFAULT 0, details TEXT,
  type SMALLINT NOT NULL DEFAULT 0, channel VARCHAR(20) NOT NULL DEFAULT 'default', details_nr SMALLINT NOT NULL DEFAULT 0, IP VARCHAR(39) NOT NULL DEFAULT '', log_data TEXT,
  event_pid INTEGER NOT NULL DEFAULT -1, workspace INTEGER NOT NULL DEFAULT 0, NEWid VARCHAR(30) NOT NULL DEFAULT '', request_id VARCHAR(13) NOT NULL DEFAULT '',
  time_micro FLOAT NOT NULL DEFAULT 0, component VARCHAR(255) NOT NULL DEFAULT '', level VARCHAR(10) NOT NULL DEFAULT 'info', message TEXT, data TEXT);
INSERT INTO sys_log (uid, tstamp, userid, type, channel, level, error, details, IP, log_data, tablename, recuid, message) VALUES
  (1, 1767225600, 1, 255, 'user', 'info', 0, 'User %s logged in from ###IP###', '203.0.113.7', '["root"]', '', 0, NULL),
  (2, 1767225700, 1, 1, 'content', 'info', 0, 'Record "%s" (%s) was updated.', '203.0.113.7', '["About us"]', 'pages', 2, NULL),
  (3, 1767225800, 1, 1, 'content', 'info', 1, 'Attempt to modify table "%s" without permission', '203.0.113.7', '["be_users"]', 'pages', 3, NULL),
  (4, 1767225900, 0, 5, 'php', 'error', 2, 'Core: Exception handler (WEB): Uncaught TYPO3 Exception for ann@example.com from 203.0.113.7 and 2001:db8::17 at 12:34:56', '203.0.113.7', '', '', 0, NULL),
  (5, 1767226000, 0, 255, 'user', 'info', 3, 'Login-attempt from ###IP###, username ''%s'', password not accepted!', '203.0.113.8', '["mallory"]', '', 0, NULL),
  (6, 1767226100, 0, 0, 'default', 'warning', 0, NULL, '', '', '', 0, 'The cache is slow');

CREATE TABLE tx_news_domain_model_news (uid INTEGER NOT NULL PRIMARY KEY, pid INTEGER NOT NULL DEFAULT 0, tstamp INTEGER NOT NULL DEFAULT 0, deleted SMALLINT NOT NULL DEFAULT 0,
  hidden SMALLINT NOT NULL DEFAULT 0, title VARCHAR(255) NOT NULL DEFAULT '', author_email VARCHAR(255) NOT NULL DEFAULT '', api_token VARCHAR(255) NOT NULL DEFAULT '');
INSERT INTO tx_news_domain_model_news VALUES (17, 8, 1767225600, 0, 1, 'New bags', 'ann@example.com', 'token-of-news'), (18, 8, 1767225600, 1, 0, 'Old bags', '', '');
