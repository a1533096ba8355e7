-- 22 queries after the descriptions of TPC-H's, with parameters and words of our own.
-- Each begins with its name; every order is total, so that equal answers are equal lists.

-- Q1
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
  sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
  avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
FROM lineitem WHERE l_shipdate <= DATE '1998-08-20'
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus

-- Q2
WITH offers AS (
  SELECT * FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey
    JOIN nation ON n_nationkey = s_nationkey JOIN region ON r_regionkey = n_regionkey
  WHERE r_name = 'EUROPE'
)
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part JOIN offers o ON p_partkey = o.ps_partkey
WHERE p_size = 15 AND p_type LIKE '%TIN'
  AND o.ps_supplycost = (SELECT min(ps_supplycost) FROM offers i WHERE i.ps_partkey = p_partkey)
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100

-- Q3
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
WHERE c_mktsegment = 'TRAVEL' AND o_orderdate < DATE '1995-03-20' AND l_shipdate > DATE '1995-03-20'
GROUP BY l_orderkey, o_orderdate, o_shippriority
ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10

-- Q4
SELECT o_orderpriority, count(*) FROM orders
WHERE o_orderdate >= DATE '1993-04-01' AND o_orderdate < DATE '1993-07-01' AND EXISTS (
  SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority

-- Q5
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM region JOIN nation ON n_regionkey = r_regionkey JOIN supplier ON s_nationkey = n_nationkey
  JOIN lineitem ON l_suppkey = s_suppkey JOIN orders ON o_orderkey = l_orderkey
  JOIN customer ON c_custkey = o_custkey AND c_nationkey = s_nationkey
WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1995-01-01' AND o_orderdate < DATE '1996-01-01'
GROUP BY n_name ORDER BY revenue DESC, n_name

-- Q6
SELECT sum(l_extendedprice * l_discount) FROM lineitem
WHERE l_shipdate >= DATE '1995-01-01' AND l_shipdate < DATE '1996-01-01'
  AND l_discount BETWEEN 0.04 AND 0.06 AND l_quantity < 25

-- Q7
SELECT s.n_name, c.n_name, year(l_shipdate) AS shipped, sum(l_extendedprice * (1 - l_discount))
FROM lineitem JOIN supplier ON s_suppkey = l_suppkey JOIN orders ON o_orderkey = l_orderkey
  JOIN customer ON c_custkey = o_custkey
  JOIN nation s ON s.n_nationkey = s_nationkey JOIN nation c ON c.n_nationkey = c_nationkey
WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
  AND (s.n_name, c.n_name) IN (('NORWAY', 'POLAND'), ('POLAND', 'NORWAY'))
GROUP BY s.n_name, c.n_name, year(l_shipdate) ORDER BY s.n_name, c.n_name, shipped

-- Q8
SELECT year(o_orderdate) AS ordered,
  sum(CASE WHEN s.n_name = 'KENYA' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
    / sum(l_extendedprice * (1 - l_discount))
FROM part JOIN lineitem ON l_partkey = p_partkey JOIN supplier ON s_suppkey = l_suppkey
  JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
  JOIN nation c ON c.n_nationkey = c_nationkey JOIN region ON r_regionkey = c.n_regionkey
  JOIN nation s ON s.n_nationkey = s_nationkey
WHERE r_name = 'AFRICA' AND p_type = 'SMALL BRUSHED TIN'
  AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
GROUP BY year(o_orderdate) ORDER BY ordered

-- Q9
SELECT n_name, year(o_orderdate) AS ordered,
  sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)
FROM part JOIN lineitem ON l_partkey = p_partkey
  JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
  JOIN supplier ON s_suppkey = l_suppkey JOIN orders ON o_orderkey = l_orderkey
  JOIN nation ON n_nationkey = s_nationkey
WHERE p_name LIKE '%olive%'
GROUP BY n_name, year(o_orderdate) ORDER BY n_name, ordered DESC

-- Q10
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS lost, c_acctbal, n_name,
  c_address, c_phone, c_comment
FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
  JOIN nation ON n_nationkey = c_nationkey
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01' AND l_returnflag = 'R'
GROUP BY c_custkey, c_name, c_acctbal, n_name, c_address, c_phone, c_comment
ORDER BY lost DESC, c_custkey LIMIT 20

-- Q11
WITH stock AS (
  SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS worth
  FROM partsupp JOIN supplier ON s_suppkey = ps_suppkey JOIN nation ON n_nationkey = s_nationkey
  WHERE n_name = 'JAPAN' GROUP BY ps_partkey
)
SELECT ps_partkey, worth FROM stock WHERE worth > (SELECT 2.5 * avg(worth) FROM stock)
ORDER BY worth DESC, ps_partkey

-- Q12
SELECT l_shipmode, count_if(o_orderpriority IN ('1-NOW', '2-SOON')),
  count_if(o_orderpriority NOT IN ('1-NOW', '2-SOON'))
FROM orders JOIN lineitem ON l_orderkey = o_orderkey
WHERE l_shipmode IN ('BOAT', 'TRAIN') AND l_shipdate < l_commitdate AND l_commitdate < l_receiptdate
  AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
GROUP BY l_shipmode ORDER BY l_shipmode

-- Q13
SELECT orders_made, count(*) AS customers FROM (
  SELECT c_custkey, count(o_orderkey) AS orders_made
  FROM customer LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE '%urgent%refund%'
  GROUP BY c_custkey)
GROUP BY orders_made ORDER BY customers DESC, orders_made DESC

-- Q14
SELECT 100 * sum(CASE WHEN p_type LIKE 'SALE%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
  / sum(l_extendedprice * (1 - l_discount))
FROM lineitem JOIN part ON p_partkey = l_partkey
WHERE l_shipdate >= DATE '1995-10-01' AND l_shipdate < DATE '1995-11-01'

-- Q15
WITH sold AS (
  SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount)) AS total FROM lineitem
  WHERE l_shipdate >= DATE '1996-04-01' AND l_shipdate < DATE '1996-07-01' GROUP BY l_suppkey
)
SELECT s_suppkey, s_name, s_address, s_phone, total FROM supplier JOIN sold ON l_suppkey = s_suppkey
WHERE total = (SELECT max(total) FROM sold) ORDER BY s_suppkey

-- Q16
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers
FROM partsupp JOIN part ON p_partkey = ps_partkey
WHERE p_brand <> 'Brand#32' AND p_type NOT LIKE 'MEDIUM BRUSHED%'
  AND p_size IN (3, 9, 14, 19, 23, 36, 45, 49)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%late%refund%')
GROUP BY p_brand, p_type, p_size ORDER BY suppliers DESC, p_brand, p_type, p_size

-- Q17
SELECT sum(l_extendedprice) / 7 FROM lineitem JOIN part ON p_partkey = l_partkey
WHERE p_brand = 'Brand#23' AND p_container IN ('TALL JAR', 'WIDE JAR') AND l_quantity < (
  SELECT 0.2 * avg(i.l_quantity) FROM lineitem i WHERE i.l_partkey = p_partkey)

-- Q18
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
WHERE o_orderkey IN (
  SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 280)
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100

-- Q19
SELECT sum(l_extendedprice * (1 - l_discount)) FROM lineitem JOIN part ON p_partkey = l_partkey
WHERE l_shipmode IN ('PLANE', 'DRONE') AND l_shipinstruct = 'TO THE HAND' AND (
  p_brand = 'Brand#12' AND p_container LIKE 'TALL%' AND l_quantity BETWEEN 1 AND 11
    AND p_size BETWEEN 1 AND 5
  OR p_brand = 'Brand#23' AND p_container LIKE 'WIDE%' AND l_quantity BETWEEN 10 AND 20
    AND p_size BETWEEN 1 AND 10
  OR p_brand = 'Brand#34' AND p_container LIKE 'FLAT%' AND l_quantity BETWEEN 20 AND 30
    AND p_size BETWEEN 1 AND 15)

-- Q20
SELECT s_name, s_address FROM supplier JOIN nation ON n_nationkey = s_nationkey
WHERE n_name = 'CANADA' AND s_suppkey IN (
  SELECT ps_suppkey FROM partsupp
  WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'olive%') AND ps_availqty > (
    SELECT 0.5 * sum(l_quantity) FROM lineitem
    WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
      AND l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'))
ORDER BY s_name

-- Q21
SELECT s_name, count(*) AS waiting
FROM supplier JOIN nation ON n_nationkey = s_nationkey JOIN lineitem late ON l_suppkey = s_suppkey
  JOIN orders ON o_orderkey = l_orderkey
WHERE n_name = 'KENYA' AND o_orderstatus = 'F' AND l_receiptdate > l_commitdate
  AND EXISTS (SELECT 1 FROM lineitem other
    WHERE other.l_orderkey = late.l_orderkey AND other.l_suppkey <> late.l_suppkey)
  AND NOT EXISTS (SELECT 1 FROM lineitem other
    WHERE other.l_orderkey = late.l_orderkey AND other.l_suppkey <> late.l_suppkey
      AND other.l_receiptdate > other.l_commitdate)
GROUP BY s_name ORDER BY waiting DESC, s_name LIMIT 100

-- Q22
WITH reachable AS (
  SELECT c_custkey, c_acctbal, substring(c_phone, 1, 2) AS code FROM customer
  WHERE substring(c_phone, 1, 2) IN ('11', '14', '19', '22', '27', '30', '33')
)
SELECT code, count(*), sum(c_acctbal) FROM reachable
WHERE c_acctbal > (SELECT avg(c_acctbal) FROM reachable WHERE c_acctbal > 0)
  AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)
GROUP BY code ORDER BY code
