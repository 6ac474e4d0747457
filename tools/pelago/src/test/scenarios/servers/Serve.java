// The page, from OpenJDK's own server with a pool of threads.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Executors;

public class Serve {
    public static void main(String[] words) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(8080), 0);
        server.createContext("/", asked -> {
            byte[] page = Files.readAllBytes(Path.of("/served" + asked.getRequestURI().getPath()));
            asked.sendResponseHeaders(200, page.length);
            asked.getResponseBody().write(page);
            asked.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
