"""The 22 queries of `tpch.sql` in Spark: a generator of their tables, and what is measured.

Tables and sizes are those of TPC-H's public description; rows, words and queries are our own, so
times compare with Spark on Parquet here, and with no published result.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.random import Generator
from pyspark.sql import SparkSession

from bench.runner import Bar, make_row, show_progress
from bench.spark_session import CATALOG, Setup, Statements, measure_operations

_BAR, _BAR_OF_THE_MEAN = 2.0, 1.3
"""For one query and for the geometric mean of all, in times of Parquet."""
_SEED = 22
_ORDERS_PER_FILE = 200_000
_FIRST_DAY, _DAYS = np.datetime64("1992-01-01", "D"), 2406
"""Orders are made on these days."""
_TODAY = np.datetime64("1995-06-17", "D")
"""What is shipped or received later is not yet."""
_COLOURS = [
    "amber",
    "basil",
    "cedar",
    "coral",
    "ebony",
    "fennel",
    "grape",
    "hazel",
    "ivory",
    "jade",
    "khaki",
    "lemon",
    "maple",
    "navy",
    "olive",
    "pearl",
    "quartz",
    "ruby",
    "sable",
    "topaz",
    "umber",
    "violet",
    "walnut",
    "zinc",
]
_WORDS = [
    *_COLOURS,
    "asks",
    "calls",
    "cheaply",
    "fills",
    "gladly",
    "holds",
    "late",
    "missing",
    "often",
    "pays",
    "quietly",
    "refund",
    "sends",
    "slowly",
    "truly",
    "urgent",
    "waits",
    "weekly",
    "yields",
]
_REGIONS = {
    "AFRICA": ["GHANA", "KENYA", "SENEGAL", "TUNISIA", "ZAMBIA"],
    "AMERICA": ["BOLIVIA", "CANADA", "CHILE", "MEXICO", "URUGUAY"],
    "ASIA": ["INDIA", "JAPAN", "MALAYSIA", "NEPAL", "VIETNAM"],
    "EUROPE": ["AUSTRIA", "GREECE", "NORWAY", "POLAND", "SPAIN"],
    "OCEANIA": ["FIJI", "NAURU", "PALAU", "SAMOA", "TONGA"],
}
_NATIONS = [name for nations in _REGIONS.values() for name in nations]
_TYPES = [
    f"{size} {finish} {metal}"
    for size in ("SMALL", "MEDIUM", "LARGE", "SPARE", "STOCK", "SALE")
    for finish in ("BRUSHED", "CAST", "GROUND", "PAINTED", "RAW")
    for metal in ("BRONZE", "GOLD", "IRON", "LEAD", "TIN")
]
_CONTAINERS = [
    f"{size} {box}"
    for size in ("TALL", "WIDE", "FLAT", "TINY", "HUGE")
    for box in ("BAG", "BOX", "CAN", "CRATE", "DRUM", "JAR", "SACK", "TUBE")
]
_BRANDS = [f"Brand#{maker}{number}" for maker in range(1, 6) for number in range(1, 6)]


# -- the tables ------------------------------------------------------------------------------------


def write_tables(directory: Path, scale: float) -> None:
    """Write the eight tables as Parquet files, a directory for each.

    Args:
        scale: 1 is 6 million rows of ``lineitem``; at least 0.001.
    """
    random = np.random.default_rng(_SEED)
    parts, suppliers, customers = (round(n * scale) for n in (200_000, 10_000, 150_000))
    _write(directory, "region", _regions(random))
    _write(directory, "nation", _nations(random))
    _write(directory, "supplier", _parties(random, "s", "supp", suppliers))
    people = _parties(random, "c", "cust", customers)
    segments = _pick(random, ["FARMING", "HEALTH", "SCHOOLS", "SPORTS", "TRAVEL"], customers)
    _write(directory, "customer", people.append_column("c_mktsegment", segments))
    _write(directory, "part", _parts(random, parts))
    _write(directory, "partsupp", _offers(random, parts, suppliers))
    orders = round(1_500_000 * scale)
    for number, start in enumerate(range(0, orders, _ORDERS_PER_FILE)):
        keys = np.arange(start, min(start + _ORDERS_PER_FILE, orders))
        order, lines = _sales(random, keys, parts, suppliers, customers)
        _write(directory, "orders", order, number)
        _write(directory, "lineitem", lines, number)


def _write(directory: Path, name: str, table: pa.Table, number: int = 0) -> None:
    target = directory / name
    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, target / f"part-{number:03}.parquet", compression="snappy")


def _regions(random: Generator) -> pa.Table:
    names = list(_REGIONS)
    return pa.table(
        {"r_regionkey": np.arange(5), "r_name": names, "r_comment": _phrases(random, 5)}
    )


def _nations(random: Generator) -> pa.Table:
    return pa.table(
        {
            "n_nationkey": np.arange(25),
            "n_name": _NATIONS,
            "n_regionkey": np.arange(25) // 5,
            "n_comment": _phrases(random, 25),
        }
    )


def _parties(random: Generator, prefix: str, key: str, count: int) -> pa.Table:
    """Return suppliers or customers."""
    keys, nation = np.arange(1, count + 1), random.integers(0, 25, count)
    number = pc.cast(pa.array(random.integers(1_000_000, 10_000_000, count)), pa.string())
    code = pc.cast(pa.array(nation + 10), pa.string())
    return pa.table(
        {
            f"{prefix}_{key}key": keys,
            f"{prefix}_name": _numbered(f"{key}#", keys),
            f"{prefix}_address": _phrases(random, count),
            f"{prefix}_nationkey": nation,
            f"{prefix}_phone": pc.binary_join_element_wise(code, number, "-"),
            f"{prefix}_acctbal": _money(random.integers(-99_999, 999_999, count)),
            f"{prefix}_comment": _phrases(random, count),
        }
    )


def _parts(random: Generator, count: int) -> pa.Table:
    keys = np.arange(1, count + 1)
    names = [_pick(random, _COLOURS, count) for _ in range(3)]
    brand = random.integers(0, 25, count)
    return pa.table(
        {
            "p_partkey": keys,
            "p_name": pc.binary_join_element_wise(*names, " "),
            "p_mfgr": _numbered("Maker#", brand // 5 + 1),
            "p_brand": pa.array(_BRANDS).take(pa.array(brand)),
            "p_type": _pick(random, _TYPES, count),
            "p_size": random.integers(1, 51, count, dtype=np.int32),
            "p_container": _pick(random, _CONTAINERS, count),
            "p_retailprice": _money(_price(keys)),
            "p_comment": _phrases(random, count),
        }
    )


def _offers(random: Generator, parts: int, suppliers: int) -> pa.Table:
    """Return what each part's four suppliers have of it."""
    keys = np.repeat(np.arange(1, parts + 1), 4)
    return pa.table(
        {
            "ps_partkey": keys,
            "ps_suppkey": _supplier(keys, np.tile(np.arange(4), parts), suppliers),
            "ps_availqty": random.integers(1, 10_000, len(keys), dtype=np.int32),
            "ps_supplycost": _money(random.integers(100, 100_001, len(keys))),
            "ps_comment": _phrases(random, len(keys)),
        }
    )


def _sales(
    random: Generator, numbers: Any, parts: int, suppliers: int, customers: int
) -> tuple[pa.Table, pa.Table]:
    """Return orders, whose keys have gaps, and their one to seven lines."""
    keys, count = numbers // 8 * 32 + numbers % 8 + 1, len(numbers)
    lines = random.integers(1, 8, count)
    first = np.cumsum(lines) - lines
    row = np.repeat(np.arange(count), lines)
    ordered = _FIRST_DAY + random.integers(0, _DAYS, count).astype("timedelta64[D]")
    part = random.integers(1, parts + 1, len(row))
    quantity = random.integers(1, 51, len(row))
    discount, tax = random.integers(0, 11, len(row)), random.integers(0, 9, len(row))
    price = quantity * _price(part)
    shipped = ordered[row] + _days(random, 1, 121, len(row))
    received = shipped + _days(random, 1, 30, len(row))
    is_open = shipped > _TODAY
    lineitem = pa.table(
        {
            "l_orderkey": keys[row],
            "l_partkey": part,
            "l_suppkey": _supplier(part, random.integers(0, 4, len(row)), suppliers),
            "l_linenumber": (np.arange(len(row)) - first[row] + 1).astype(np.int32),
            "l_quantity": _money(quantity * 100),
            "l_extendedprice": _money(price),
            "l_discount": _money(discount),
            "l_tax": _money(tax),
            "l_returnflag": np.where(
                received > _TODAY, "N", np.where(random.random(len(row)) < 0.5, "R", "A")
            ),
            "l_linestatus": np.where(is_open, "O", "F"),
            "l_shipdate": shipped,
            "l_commitdate": ordered[row] + _days(random, 30, 90, len(row)),
            "l_receiptdate": received,
            "l_shipinstruct": _pick(
                random, ["TO THE DOOR", "TO THE HAND", "TO A SHOP", "CALL FIRST"], len(row)
            ),
            "l_shipmode": _pick(
                random, ["BIKE", "BOAT", "DRONE", "PLANE", "POST", "TRAIN", "TRUCK"], len(row)
            ),
            "l_comment": _phrases(random, len(row)),
        }
    )
    opened = np.add.reduceat(is_open.astype(np.int64), first)
    paid = price * (100 - discount) * (100 + tax) // 10_000
    customer = random.integers(1, customers + 1, count)
    orders = pa.table(
        {
            "o_orderkey": keys,
            # A third of the customers have no orders.
            "o_custkey": np.where(customer % 3 == 0, np.maximum(customer - 1, 1), customer),
            "o_orderstatus": np.where(opened == 0, "F", np.where(opened == lines, "O", "P")),
            "o_totalprice": _money(np.add.reduceat(paid, first)),
            "o_orderdate": ordered,
            "o_orderpriority": _pick(
                random, ["1-NOW", "2-SOON", "3-MEDIUM", "4-LATER", "5-ANY TIME"], count
            ),
            "o_clerk": _numbered("clerk#", random.integers(1, 1001, count)),
            "o_shippriority": np.zeros(count, dtype=np.int32),
            "o_comment": _phrases(random, count),
        }
    )
    return orders, lineitem


def _supplier(part: Any, number: Any, suppliers: int) -> Any:
    return (part * 7 + number * (suppliers // 4 + 1)) % suppliers + 1


def _price(part: Any) -> Any:
    """Return the price of parts in cents."""
    return 90_000 + part // 10 % 20_001 + 100 * (part % 1000)


def _days(random: Generator, least: int, most: int, count: int) -> Any:
    return random.integers(least, most + 1, count).astype("timedelta64[D]")


def _money(cents: Any) -> pa.Array:
    """Return decimals of 12 digits, two of them behind the point."""
    cents = cents.astype(np.int64)
    words = np.stack([cents, cents >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words)])


def _pick(random: Generator, choices: list[str], count: int) -> pa.Array:
    return pa.array(choices).take(pa.array(random.integers(0, len(choices), count)))


def _numbered(prefix: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "")


def _phrases(random: Generator, count: int) -> pa.Array:
    """Return texts of six words, most of them different."""
    words = [_pick(random, _WORDS, 2000) for _ in range(3)]
    pool = pc.binary_join_element_wise(*words, " ")
    halves = [pool.take(pa.array(random.integers(0, len(pool), count))) for _ in range(2)]
    return pc.binary_join_element_wise(*halves, " ")


# -- the queries -----------------------------------------------------------------------------------


def queries() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each query, in order."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    for part in text.split("\n-- Q")[1:]:
        number, query = part.split("\n", 1)
        yield f"Q{number}", query.strip()


def measure_queries(
    spark: SparkSession, setup: Setup, scale: float, rounds: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the tables and run each query on both; return a row for each, and one for all."""
    show_progress("writing the tables of the queries …")
    source, parquet = setup.directory / "tpch-source", setup.directory / "tpch-parquet"
    write_tables(source, scale)
    ours, theirs = f"{CATALOG}.tpch", "spark_catalog.tpch"
    for namespace in (ours, theirs):
        spark.sql(f"CREATE NAMESPACE {namespace}")
    for each in sorted(source.iterdir()):
        frame = spark.read.parquet(str(each))
        frame.writeTo(f"{ours}.{each.name}").create()
        frame.write.option("path", str(parquet / each.name)).saveAsTable(f"{theirs}.{each.name}")
    shutil.rmtree(source)

    def run(query: str, namespace: str, _: int) -> list[Any]:
        spark.sql(f"USE {namespace}")
        return spark.sql(query).collect()

    show_progress("running the queries …")
    statements = Statements(spark, (ours, theirs))
    operations = [statements.make(name, partial(run, query), _BAR) for name, query in queries()]
    rows = measure_operations(operations, rounds)
    for row, (_, query) in zip(rows, queries(), strict=True):
        row["rows"] = len(run(query, theirs, 0))
    return rows, _mean(rows)


def _mean(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    means = {
        key: round(statistics.geometric_mean(row[key] for row in found), 3)
        for key in ("ratio", "cpu_ratio")
    }
    bars = [Bar(key, "<=", _BAR_OF_THE_MEAN) for key in means]
    return make_row({"queries": "geometric mean", **means}, bars, 0)
