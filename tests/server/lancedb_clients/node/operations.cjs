// Tries every public method of LanceDB for Node.js on a gateway, and prints what came of each.
//
// Arguments: the directory with the packages, the address of the gateway, the name of a database.

const assert = require("node:assert");
const { createRequire } = require("node:module");

const [directory, url, database] = process.argv.slice(2);
const packages = createRequire(`${directory}/`);
const lancedb = packages("@lancedb/lancedb");
const arrow = packages("apache-arrow");
const COUNT = 20;

const rows = (count, first = 0) =>
  Array.from({ length: count }, (_, i) => ({
    id: first + i,
    title: `film number${first + i}`,
    vector: [first + i, 0],
  }));
const ids = async (query) => (await query.toArray()).map((row) => Number(row.id)).sort();
const schema = new arrow.Schema([new arrow.Field("id", new arrow.Int32(), true)]);

async function tagged({ table }) {
  const tags = await table.tags();
  await tags.create("first", await table.version());
  await table.add(rows(3, COUNT));
  await table.checkout("first");
  assert.equal(await table.countRows(), COUNT);
  await table.checkoutLatest();
  assert.equal(await table.countRows(), COUNT + 3);
  await table.checkout("first");
  await table.restore();
  assert.equal(await table.countRows(), COUNT);
  assert.equal((await table.listVersions()).length, await table.version());
}

async function branched({ table }) {
  const branches = await table.branches();
  const branch = await branches.create("trial");
  await branch.add(rows(3, COUNT));
  assert.equal(branch.currentBranch(), "trial");
  assert.equal(await branch.countRows(), COUNT + 3);
  assert.equal(await table.countRows(), COUNT);
}

async function indexed({ table }) {
  await table.createIndex("id", { config: lancedb.Index.btree() });
  await table.waitForIndex(["id_idx"], 20);
  assert.deepEqual((await table.listIndices()).map((each) => each.name), ["id_idx"]);
  assert.equal((await table.indexStats("id_idx")).numIndexedRows, COUNT);
  await table.dropIndex("id_idx");
  assert.deepEqual(await table.listIndices(), []);
}

async function searched({ table }) {
  assert.deepEqual(await ids(table.search([7, 0]).limit(1)), [7]);
  assert.deepEqual(await ids(table.vectorSearch([7, 0]).limit(1)), [7]);
  assert.deepEqual(await ids(table.query().where("id = 3")), [3]);
  await table.createIndex("title", { config: lancedb.Index.fts() });
  assert.deepEqual(await ids(table.search("number7", "fts").limit(1)), [7]);
}

async function columns({ table }) {
  await table.addColumns([{ name: "twice", valueSql: "id * 2" }]);
  await table.alterColumns([{ path: "twice", rename: "double" }]);
  await table.dropColumns(["double"]);
  const found = (await table.schema()).fields.map((field) => field.name);
  assert.deepEqual(found, ["id", "title", "vector"]);
}

const table = {
  add: async ({ table }) => {
    await table.add(rows(3, COUNT));
    assert.equal(await table.countRows(), COUNT + 3);
  },
  addColumns: columns, alterColumns: columns, dropColumns: columns, schema: columns,
  branches: branched, currentBranch: branched,
  checkout: tagged, checkoutLatest: tagged, restore: tagged, tags: tagged, version: tagged,
  listVersions: tagged, countRows: tagged,
  close: ({ table }) => table.close(),
  createIndex: indexed, dropIndex: indexed, indexStats: indexed, listIndices: indexed,
  waitForIndex: indexed,
  createIndexAsync: async ({ table }) => {
    const job = await table.createIndexAsync("id", { config: lancedb.Index.btree() });
    await job.wait();
    assert.equal((await table.indexStats("id_idx")).numIndexedRows, COUNT);
  },
  delete: async ({ table }) => {
    assert.equal((await table.delete("id < 3")).numDeletedRows, 3);
    assert.equal(await table.countRows(), COUNT - 3);
  },
  display: ({ table }) => assert.ok(table.display()),
  isOpen: ({ table }) => assert.ok(table.isOpen()),
  name: ({ table }) => assert.equal(table.name, "t"),
  mergeInsert: async ({ table }) => {
    const merge = table.mergeInsert("id").whenMatchedUpdateAll().whenNotMatchedInsertAll();
    const result = await merge.execute(rows(4, COUNT - 2));
    assert.deepEqual([result.numUpdatedRows, result.numInsertedRows], [2, 2]);
  },
  query: searched, search: searched, vectorSearch: searched,
  stats: async ({ table }) => assert.equal((await table.stats()).numRows, COUNT),
  takeOffsets: async ({ table }) => assert.deepEqual(await ids(table.takeOffsets([1, 3])), [1, 3]),
  takeRowIds: async ({ table }) => assert.deepEqual(await ids(table.takeRowIds([2])), [2]),
  toArrow: async ({ table }) => assert.equal((await table.toArrow()).numRows, COUNT),
  tokenize: async ({ table }) => {
    await table.createIndex("title", { config: lancedb.Index.fts() });
    assert.ok((await table.tokenize("one film", { column: "title" })).length > 0);
  },
  update: async ({ table }) => {
    const result = await table.update({ where: "id < 2", values: { title: "x" } });
    assert.equal(result.rowsUpdated, 2);
  },
  updateFieldMetadata: async ({ table }) => {
    await table.updateFieldMetadata([{ path: "id", metadata: { unit: "m" } }]);
    assert.equal((await table.schema()).fields[0].metadata.get("unit"), "m");
  },
};
const plain = {
  closeLsmWriters: [], getLsmWriteSpec: [], initialStorageOptions: [], latestStorageOptions: [],
  getEmbeddingFunctions: [], migrateManifestPathsV2: [], usesV2ManifestPaths: [],
  blobColumns: [], checkpointLsm: [], compactLsm: [], flushLsm: [], getLsmStats: [],
  fetchBlobFiles: ["vector", [0]], fetchBlobs: ["vector", [0]], refreshColumn: ["id"],
  refreshMaterializedView: [],
  optimize: [], prewarmData: [], prewarmIndex: ["id_idx"],
  setLsmWriteSpec: [{ specType: "unsharded" }],
  setUnenforcedPrimaryKey: ["id"], unsetLsmWriteSpec: [],
};
for (const [name, args] of Object.entries(plain)) {
  table[name] = ({ table }) => table[name](...args);
}

const connection = {
  close: ({ db }) => db.close(),
  createTable: async ({ db }) => {
    assert.equal(await (await db.createTable("n", rows(2))).countRows(), 2);
    await assert.rejects(db.createTable("n", rows(2)), /already exists/);
    await assert.rejects(db.openTable("nowhere"), /was not found/);
  },
  createEmptyTable: async ({ db }) => {
    assert.equal(await (await db.createEmptyTable("n", schema)).countRows(), 0);
  },
  openTable: async ({ db }) => assert.equal(await (await db.openTable("t")).countRows(), COUNT),
  tableNames: async ({ db }) => assert.deepEqual(await db.tableNames(), ["t"]),
  dropTable: async ({ db }) => {
    await db.dropTable("t");
    assert.deepEqual(await db.tableNames(), []);
  },
  renameTable: async ({ db }) => {
    await db.renameTable("t", "u");
    assert.deepEqual(await db.tableNames(), ["u"]);
  },
  listTables: async ({ db }) => assert.deepEqual((await db.listTables()).tables, ["t"]),
  display: ({ db }) => assert.ok(db.display()),
  isOpen: ({ db }) => assert.ok(db.isOpen()),
  describeNamespace: ({ db }) => db.describeNamespace([]),
  listNamespaces: async ({ db }) => assert.deepEqual((await db.listNamespaces()).namespaces, []),
};
const other = {
  getStorageOptions: [], cancelJob: ["j"], cloneTable: ["copy", "/nonexistent"], createNamespace: [["made"]],
  dropAllTables: [], dropNamespace: [["made"]], getJob: ["j"], jobHistory: [], listJobs: [],
  createMaterializedView: ["v", "SELECT * FROM t"], dropMaterializedView: ["v"],
  createMaterializedViewAsync: ["v", "SELECT * FROM t"], dropMaterializedViewAsync: ["v"],
  listMaterializedViews: [], openMaterializedView: ["v"], dropTableAsync: ["t"],
};
for (const [name, args] of Object.entries(other)) {
  connection[name] = ({ db }) => db[name](...args);
}
connection.openJob = async ({ db }) => (await db.openJob("j")).status();
table.refreshColumnAsync = async ({ table }) => {
  await table.addColumns({ computed: [{ name: "twice", valueSql: "id * 2" }] });
  await (await table.refreshColumnAsync("twice")).wait();
};
connection.job = ({ db }) => db.job("j").status();

const methods = (object) => {
  const names = new Set();
  for (let each = Object.getPrototypeOf(object); each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    Object.getOwnPropertyNames(each).forEach((name) => names.add(name));
  }
  return [...names].filter((name) => name !== "constructor" && !name.startsWith("_")).sort();
};

const scene = async () => {
  const options = { apiKey: "k", hostOverride: url };
  const db = await lancedb.connect(`db://${database}`, options);
  for (const name of await db.tableNames()) {
    await db.dropTable(name);
  }
  return { db, table: await db.createTable("t", rows(COUNT)) };
};

const attempt = async (trial, trialScene) => {
  if (trial === undefined) {
    return "there is no trial";
  }
  try {
    await trial(trialScene);
    return "works";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};

async function main() {
  const results = { connections: {}, tables: {} };
  const first = await scene();
  for (const name of methods(first.db)) {
    results.connections[name] = await attempt(connection[name], await scene());
  }
  for (const name of methods(first.table).filter((each) => each !== "inner")) {
    results.tables[name] = await attempt(table[name], await scene());
  }
  console.log(JSON.stringify({ ...results, exports: Object.keys(lancedb) }));
}

main();
