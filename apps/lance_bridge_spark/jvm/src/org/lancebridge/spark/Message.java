package org.lancebridge.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.List;

/** A message to or from a Python process: JSON and byte arrays. */
final class Message {
  private static final ObjectMapper JSON = new ObjectMapper();

  final JsonNode json;
  final List<byte[]> parts;

  Message(JsonNode json, List<byte[]> parts) {
    this.json = json;
    this.parts = parts;
  }

  void write(DataOutputStream out) throws IOException {
    write(out, JSON.writeValueAsBytes(json));
    out.writeInt(parts.size());
    for (byte[] part : parts) {
      write(out, part);
    }
    out.flush();
  }

  private static void write(DataOutputStream out, byte[] bytes) throws IOException {
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  /** @throws java.io.EOFException at the end of the stream */
  static Message read(DataInputStream in) throws IOException {
    JsonNode json = JSON.readTree(readBytes(in));
    byte[][] parts = new byte[in.readInt()][];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = readBytes(in);
    }
    return new Message(json, List.of(parts));
  }

  private static byte[] readBytes(DataInputStream in) throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return bytes;
  }
}
