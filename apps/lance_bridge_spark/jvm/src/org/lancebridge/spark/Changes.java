package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.TableChange;

/** The changes of ALTER TABLE and ALTER NAMESPACE as JSON; unsupported changes are refused by name. */
final class Changes {
  private Changes() {}

  static ArrayNode ofTable(TableChange... changes) {
    ArrayNode list = Service.object().putArray("changes");
    for (TableChange change : changes) {
      boolean isOfColumn = change instanceof TableChange.ColumnChange;
      list.add(isOfColumn ? column((TableChange.ColumnChange) change) : property(change));
    }
    return list;
  }

  private static ObjectNode property(TableChange change) {
    if (change instanceof TableChange.SetProperty) {
      TableChange.SetProperty set = (TableChange.SetProperty) change;
      return kind("set_property").put("key", set.property()).put("value", set.value());
    }
    if (change instanceof TableChange.RemoveProperty) {
      return kind("remove_property").put("key", ((TableChange.RemoveProperty) change).property());
    }
    throw refused(change);
  }

  private static ObjectNode column(TableChange.ColumnChange change) {
    ObjectNode json = describe(change);
    json.set("field", Service.tree(change.fieldNames()));
    return json;
  }

  private static ObjectNode describe(TableChange.ColumnChange change) {
    if (change instanceof TableChange.AddColumn) {
      return added((TableChange.AddColumn) change);
    }
    if (change instanceof TableChange.DeleteColumn) {
      return kind("drop_column").put("if_exists", ((TableChange.DeleteColumn) change).ifExists());
    }
    if (change instanceof TableChange.RenameColumn) {
      return kind("rename_column").put("to", ((TableChange.RenameColumn) change).newName());
    }
    if (change instanceof TableChange.UpdateColumnType) {
      return kind("update_type").put("type", ((TableChange.UpdateColumnType) change).newDataType().json());
    }
    if (change instanceof TableChange.UpdateColumnNullability) {
      return kind("update_nullability").put("nullable", ((TableChange.UpdateColumnNullability) change).nullable());
    }
    if (change instanceof TableChange.UpdateColumnComment) {
      return kind("update_comment").put("comment", ((TableChange.UpdateColumnComment) change).newComment());
    }
    if (change instanceof TableChange.UpdateColumnPosition) {
      ObjectNode json = kind("update_position");
      json.set("position", position(((TableChange.UpdateColumnPosition) change).position()));
      return json;
    }
    throw refused(change);
  }

  private static ObjectNode added(TableChange.AddColumn change) {
    if (change.defaultValue() != null) {
      throw LanceException.unsupported(
          "Lance tables have no column defaults: add column '" + String.join(".", change.fieldNames())
              + "' without DEFAULT, then UPDATE it");
    }
    ObjectNode json = kind("add_column").put("type", change.dataType().json()).put("nullable", change.isNullable())
        .put("comment", change.comment());
    json.set("position", position(change.position()));
    return json;
  }

  private static JsonNode position(TableChange.ColumnPosition position) {
    if (position == null) {
      return Service.tree(null);
    }
    if (position instanceof TableChange.After) {
      return Service.object().put("after", ((TableChange.After) position).column());
    }
    return Service.object().put("first", true);
  }

  private static ObjectNode kind(String kind) {
    return Service.object().put("kind", kind);
  }

  private static RuntimeException refused(Object change) {
    return LanceException.unsupported("Lance tables do not support the change " + change.getClass().getSimpleName());
  }

  /** Add the properties that ALTER NAMESPACE sets and unsets to the arguments. */
  static ObjectNode ofNamespace(ObjectNode arguments, NamespaceChange... changes) {
    ObjectNode set = arguments.putObject("set");
    ArrayNode unset = arguments.putArray("unset");
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty) {
        NamespaceChange.SetProperty one = (NamespaceChange.SetProperty) change;
        set.put(one.property(), one.value());
      } else if (change instanceof NamespaceChange.RemoveProperty) {
        unset.add(((NamespaceChange.RemoveProperty) change).property());
      } else {
        throw refused(change);
      }
    }
    return arguments;
  }
}
