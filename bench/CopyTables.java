import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;

/** Copies the only table of a metastore's Derby database many times: DATABASE COUNT. */
public class CopyTables {
    /** Parents come before the rows that refer to them. */
    private static final String[] TABLES = {
        "CDS", "COLUMNS_V2", "SERDES", "SERDE_PARAMS", "SDS", "TBLS", "TABLE_PARAMS"};
    private static final List<String> KEYS = List.of("TBL_ID", "SD_ID", "CD_ID", "SERDE_ID");
    private static final int STEP = 1000;

    public static void main(String[] arguments) throws SQLException {
        int count = Integer.parseInt(arguments[1]);
        try (Connection database = DriverManager.getConnection("jdbc:derby:" + arguments[0])) {
            database.setAutoCommit(false);
            List<PreparedStatement> copies = new ArrayList<>();
            for (String each : TABLES) copies.add(copyOf(database, each));
            for (int i = 0; i < count; i++) {
                for (PreparedStatement each : copies) {
                    for (int n = 1; n <= each.getParameterMetaData().getParameterCount(); n++) {
                        each.setLong(n, STEP + i);
                    }
                    each.executeUpdate();
                }
                if (i % STEP == 0) database.commit();
            }
            try (PreparedStatement next = database.prepareStatement(
                    "UPDATE SEQUENCE_TABLE SET NEXT_VAL = NEXT_VAL + " + (2 * STEP + count))) {
                next.executeUpdate();
            }
            database.commit();
        }
        try {
            DriverManager.getConnection("jdbc:derby:;shutdown=true");
        } catch (SQLException ended) {
            // Derby says so that it has shut down.
        }
    }

    /** Returns what inserts a copy of the first table's rows, with keys that are higher by `?`. */
    private static PreparedStatement copyOf(Connection database, String table) throws SQLException {
        List<String> names = new ArrayList<>(), values = new ArrayList<>();
        String first = "";
        try (ResultSet columns = database.getMetaData().getColumns(null, null, table, null)) {
            while (columns.next()) {
                String name = columns.getString("COLUMN_NAME");
                boolean isKey = KEYS.contains(name);
                names.add('"' + name + '"');
                if (isKey) {
                    values.add(name + " + CAST(? AS BIGINT)");
                } else if (name.equals("TBL_NAME") || name.equals("LOCATION")) {
                    values.add(name + " || TRIM(CHAR(CAST(? AS BIGINT)))");
                } else {
                    values.add('"' + name + '"');
                }
                if (name.equals(keyOf(table))) first = name;
            }
        }
        return database.prepareStatement(String.format(
            "INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s < %d",
            table, String.join(", ", names), String.join(", ", values), table, first, STEP));
    }

    /** Returns the column by which the rows of the first table are found. */
    private static String keyOf(String table) {
        if (table.startsWith("T")) return "TBL_ID";
        if (table.equals("SDS")) return "SD_ID";
        return table.startsWith("C") ? "CD_ID" : "SERDE_ID";
    }
}
