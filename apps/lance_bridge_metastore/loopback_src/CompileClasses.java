import java.io.File;
import java.io.FileReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.codehaus.janino.SimpleCompiler;

/** Compiles one source file into a directory with the compiler among Spark's jars: no JDK needed. */
public class CompileClasses {
  public static void main(String[] arguments) throws Exception {
    SimpleCompiler compiler = new SimpleCompiler();
    compiler.cook(arguments[0], new FileReader(arguments[0]));
    for (Object each : compiler.getBytecodes().entrySet()) {
      Map.Entry entry = (Map.Entry) each;
      String name = ((String) entry.getKey()).replace('.', '/') + ".class";
      Path path = new File(arguments[1], name).toPath();
      Files.createDirectories(path.getParent());
      Files.write(path, (byte[]) entry.getValue());
    }
  }
}
