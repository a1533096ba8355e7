package org.apache.hadoop.hive.metastore;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import javax.net.ssl.SSLServerSocket;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransportException;

/**
 * Replaces Hive's class of this name in metastores 2.3 and 3.1, which wrap in it the server socket
 * that they opened on all addresses. It closes that socket and listens on the loopback address with
 * the same port.
 */
public class TServerSocketKeepAlive extends TServerSocket {
  public TServerSocketKeepAlive(TServerSocket given) throws TTransportException {
    super(onLoopback(given.getServerSocket()));
  }

  private static ServerSocket onLoopback(ServerSocket given) throws TTransportException {
    if (given instanceof SSLServerSocket) {
      return given;
    }
    try {
      int port = given.getLocalPort();
      given.close();
      ServerSocket socket = new ServerSocket();
      socket.setReuseAddress(true);
      socket.bind(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port));
      return socket;
    } catch (IOException error) {
      throw new TTransportException(error);
    }
  }
}
