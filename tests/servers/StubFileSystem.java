import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Stands in for an object store's connector, so that a metastore accepts its locations in tests.
 *
 * <p>Every path is an empty directory that exists. Nothing is stored, and nothing is deleted.
 */
public class StubFileSystem extends FileSystem {
  private static final short ONE_REPLICA = 1;
  private static final long BLOCK_BYTES = 1 << 20;

  private URI root;

  @Override
  public void initialize(URI name, Configuration configuration) throws IOException {
    super.initialize(name, configuration);
    root = URI.create(name.getScheme() + "://" + name.getAuthority());
  }

  @Override
  public URI getUri() {
    return root;
  }

  @Override
  public FileStatus getFileStatus(Path path) {
    return new FileStatus(0, true, ONE_REPLICA, BLOCK_BYTES, 0, path);
  }

  @Override
  public FileStatus[] listStatus(Path path) {
    return new FileStatus[0];
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) {
    return true;
  }

  @Override
  public boolean rename(Path from, Path to) {
    return true;
  }

  @Override
  public boolean delete(Path path, boolean recursive) {
    return true;
  }

  @Override
  public Path getWorkingDirectory() {
    return new Path(root + "/");
  }

  @Override
  public void setWorkingDirectory(Path path) {}

  @Override
  public FSDataInputStream open(Path path, int bufferBytes) throws IOException {
    throw new FileNotFoundException(path.toString());
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferBytes,
      short replicas,
      long blockBytes,
      Progressable progress) {
    throw new UnsupportedOperationException("StubFileSystem stores nothing: " + path);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferBytes, Progressable progress) {
    throw new UnsupportedOperationException("StubFileSystem stores nothing: " + path);
  }
}
