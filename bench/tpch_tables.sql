-- The tables of the queries: those of TPC-H's description, with words of our own.
-- Each value is computed from the id of its row.

-- functions
CREATE TEMPORARY FUNCTION number(id BIGINT, salt STRING, least BIGINT, most BIGINT) RETURNS BIGINT
  RETURN pmod(xxhash64(id, salt), most - least + 1) + least;
CREATE TEMPORARY FUNCTION pick(id BIGINT, salt STRING, words ARRAY<STRING>) RETURNS STRING
  RETURN element_at(words, CAST(number(id, salt, 1, size(words)) AS INT));
CREATE TEMPORARY FUNCTION colour(id BIGINT, salt STRING) RETURNS STRING
  RETURN pick(id, salt, array('amber', 'basil', 'cedar', 'coral', 'ebony', 'fennel', 'grape',
    'hazel', 'ivory', 'jade', 'khaki', 'lemon', 'maple', 'navy', 'olive', 'pearl', 'quartz', 'ruby',
    'sable', 'topaz', 'umber', 'violet', 'walnut', 'zinc'));
CREATE TEMPORARY FUNCTION verb(id BIGINT, salt STRING) RETURNS STRING
  RETURN pick(id, salt, array('asks', 'calls', 'cheaply', 'fills', 'gladly', 'holds', 'late',
    'missing', 'often', 'pays', 'quietly', 'refund', 'sends', 'slowly', 'truly', 'urgent', 'waits',
    'weekly', 'yields'));
CREATE TEMPORARY FUNCTION phrase(id BIGINT, salt STRING) RETURNS STRING
  RETURN concat_ws(' ', colour(id, salt || 1), verb(id, salt || 2), colour(id, salt || 3),
    verb(id, salt || 4), colour(id, salt || 5), verb(id, salt || 6));
CREATE TEMPORARY FUNCTION money(cents DECIMAL(20, 2)) RETURNS DECIMAL(12, 2)
  RETURN CAST(cents / 100 AS DECIMAL(12, 2));
CREATE TEMPORARY FUNCTION price(part BIGINT) RETURNS BIGINT
  RETURN 90000 + part div 10 % 20001 + 100 * (part % 1000);
CREATE TEMPORARY FUNCTION supplier_of(part BIGINT, offer BIGINT, suppliers BIGINT) RETURNS BIGINT
  RETURN (part * 7 + offer * (suppliers div 4 + 1)) % suppliers + 1;
CREATE TEMPORARY FUNCTION after(day DATE, id BIGINT, salt STRING, least BIGINT, most BIGINT)
  RETURNS DATE RETURN date_add(day, CAST(number(id, salt, least, most) AS INT));

-- region
SELECT id AS r_regionkey, phrase(id, 'comment') AS r_comment,
  element_at(array('AFRICA', 'AMERICA', 'ASIA', 'EUROPE', 'OCEANIA'), CAST(id + 1 AS INT)) AS r_name
FROM range(0, 5, 1, 1)

-- nation
SELECT id AS n_nationkey, id div 5 AS n_regionkey, phrase(id, 'comment') AS n_comment,
  element_at(array('GHANA', 'KENYA', 'SENEGAL', 'TUNISIA', 'ZAMBIA', 'BOLIVIA', 'CANADA', 'CHILE',
    'MEXICO', 'URUGUAY', 'INDIA', 'JAPAN', 'MALAYSIA', 'NEPAL', 'VIETNAM', 'AUSTRIA', 'GREECE',
    'NORWAY', 'POLAND', 'SPAIN', 'FIJI', 'NAURU', 'PALAU', 'SAMOA', 'TONGA'), CAST(id + 1 AS INT))
    AS n_name
FROM range(0, 25, 1, 1)

-- supplier
SELECT id + 1 AS s_suppkey, concat('supp#', id + 1) AS s_name, phrase(id, 'address') AS s_address,
  number(id, 'nation', 0, 24) AS s_nationkey,
  concat_ws('-', s_nationkey + 10, number(id, 'phone', 1000000, 9999999)) AS s_phone,
  money(number(id, 'balance', -99999, 999998)) AS s_acctbal, phrase(id, 'comment') AS s_comment
FROM range(0, :suppliers, 1, 2)

-- customer
SELECT id + 1 AS c_custkey, concat('cust#', id + 1) AS c_name, phrase(id, 'address') AS c_address,
  number(id, 'nation', 0, 24) AS c_nationkey,
  concat_ws('-', c_nationkey + 10, number(id, 'phone', 1000000, 9999999)) AS c_phone,
  money(number(id, 'balance', -99999, 999998)) AS c_acctbal, phrase(id, 'comment') AS c_comment,
  pick(id, 'segment', array('FARMING', 'HEALTH', 'SCHOOLS', 'SPORTS', 'TRAVEL')) AS c_mktsegment
FROM range(0, :customers, 1, 2)

-- part
SELECT id + 1 AS p_partkey,
  concat_ws(' ', colour(id, 'name 1'), colour(id, 'name 2'), colour(id, 'name 3')) AS p_name,
  concat('Maker#', number(id, 'maker', 1, 5)) AS p_mfgr,
  concat('Brand#', number(id, 'maker', 1, 5), number(id, 'brand', 1, 5)) AS p_brand,
  concat_ws(' ', pick(id, 'size', array('SMALL', 'MEDIUM', 'LARGE', 'SPARE', 'STOCK', 'SALE')),
    pick(id, 'finish', array('BRUSHED', 'CAST', 'GROUND', 'PAINTED', 'RAW')),
    pick(id, 'metal', array('BRONZE', 'GOLD', 'IRON', 'LEAD', 'TIN'))) AS p_type,
  CAST(number(id, 'p_size', 1, 50) AS INT) AS p_size,
  concat_ws(' ', pick(id, 'height', array('TALL', 'WIDE', 'FLAT', 'TINY', 'HUGE')),
    pick(id, 'box', array('BAG', 'BOX', 'CAN', 'CRATE', 'DRUM', 'JAR', 'SACK', 'TUBE')))
    AS p_container,
  money(price(id + 1)) AS p_retailprice, phrase(id, 'comment') AS p_comment
FROM range(0, :parts, 1, 2)

-- partsupp
SELECT id div 4 + 1 AS ps_partkey, supplier_of(ps_partkey, id % 4, :suppliers) AS ps_suppkey,
  CAST(number(id, 'available', 1, 9999) AS INT) AS ps_availqty,
  money(number(id, 'cost', 100, 100000)) AS ps_supplycost, phrase(id, 'comment') AS ps_comment
FROM range(0, 4 * :parts, 1, 4)

-- orders
-- Keys have gaps, and a third of the customers has no orders. The last line is shipped after 121 days.
SELECT id div 8 * 32 + id % 8 + 1 AS o_orderkey,
  if(customer % 3 = 0, greatest(customer - 1, 1), customer) AS o_custkey,
  after(DATE '1992-01-01', id, 'ordered', 0, 2405) AS o_orderdate,
  CASE WHEN date_add(o_orderdate, 121) <= DATE '1995-06-17' THEN 'F'
    WHEN o_orderdate >= DATE '1995-06-17' THEN 'O' ELSE 'P' END AS o_orderstatus,
  money(number(id, 'total', 100000, 50000000)) AS o_totalprice,
  pick(id, 'priority', array('1-NOW', '2-SOON', '3-MEDIUM', '4-LATER', '5-ANY TIME'))
    AS o_orderpriority,
  concat('clerk#', number(id, 'clerk', 1, 1000)) AS o_clerk, 0 AS o_shippriority,
  phrase(id, 'comment') AS o_comment
FROM (SELECT id, number(id, 'customer', 1, :customers) AS customer FROM range(0, :orders, 1, 8))

-- lineitem
WITH orders AS (
  SELECT id div 8 * 32 + id % 8 + 1 AS l_orderkey, number(id, 'lines', 1, 7) AS lines,
    after(DATE '1992-01-01', id, 'ordered', 0, 2405) AS ordered
  FROM range(0, :orders, 1, 8)
), numbered AS (
  SELECT *, explode(sequence(1, CAST(lines AS INT))) AS l_linenumber FROM orders
), lines AS (SELECT *, l_orderkey * 8 + l_linenumber AS id FROM numbered)
SELECT l_orderkey, l_linenumber, number(id, 'part', 1, :parts) AS l_partkey,
  supplier_of(l_partkey, number(id, 'offer', 0, 3), :suppliers) AS l_suppkey,
  CAST(number(id, 'quantity', 1, 50) AS DECIMAL(12, 2)) AS l_quantity,
  money(l_quantity * price(l_partkey)) AS l_extendedprice,
  money(number(id, 'discount', 0, 10)) AS l_discount, money(number(id, 'tax', 0, 8)) AS l_tax,
  after(ordered, id, 'shipped', 1, 121) AS l_shipdate,
  after(ordered, id, 'promised', 30, 90) AS l_commitdate,
  after(l_shipdate, id, 'received', 1, 30) AS l_receiptdate,
  if(l_receiptdate > DATE '1995-06-17', 'N', pick(id, 'returned', array('R', 'A'))) AS l_returnflag,
  if(l_shipdate > DATE '1995-06-17', 'O', 'F') AS l_linestatus,
  pick(id, 'how', array('TO THE DOOR', 'TO THE HAND', 'TO A SHOP', 'CALL FIRST')) AS l_shipinstruct,
  pick(id, 'mode', array('BIKE', 'BOAT', 'DRONE', 'PLANE', 'POST', 'TRAIN', 'TRUCK')) AS l_shipmode,
  phrase(id, 'comment') AS l_comment
FROM lines
