import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.neo4j.configuration.GraphDatabaseSettings;
import org.neo4j.configuration.connectors.BoltConnector;
import org.neo4j.configuration.connectors.ConnectorPortRegister;
import org.neo4j.configuration.connectors.ConnectorType;
import org.neo4j.configuration.helpers.SocketAddress;
import org.neo4j.dbms.api.DatabaseManagementServiceBuilder;
import org.neo4j.kernel.internal.GraphDatabaseAPI;

/** A Neo4j server in one process: Bolt on the loopback address, one database. See `up`, which starts it. */
public final class Neo4jServer {
    /**
     * Arguments: data folder, settings, port (0: any free one), database, plugin folder, and the process with which the
     * server ends (0: none). The password is on stdin.
     */
    public static void main(String[] arguments) throws Exception {
        var password = new BufferedReader(new InputStreamReader(System.in)).readLine();
        var server = new DatabaseManagementServiceBuilder(Path.of(arguments[0]))
                .loadPropertiesFromFile(Path.of(arguments[1]))
                .setConfig(BoltConnector.listen_address, new SocketAddress("127.0.0.1", Integer.parseInt(arguments[2])))
                .setConfig(GraphDatabaseSettings.initial_default_database, arguments[3])
                .setConfig(GraphDatabaseSettings.plugin_dir, Path.of(arguments[4]))
                .build();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
        var system = (GraphDatabaseAPI) server.database("system");
        for (var next : List.of(UUID.randomUUID().toString(), password)) { // the password that it has would be refused
            system.executeTransactionally(
                    "ALTER USER neo4j SET PASSWORD $password CHANGE NOT REQUIRED", Map.of("password", next));
        }
        var ports = system.getDependencyResolver().resolveDependency(ConnectorPortRegister.class);
        var owner = Long.parseLong(arguments[5]);
        if (owner != 0) {
            ProcessHandle.of(owner).orElseThrow().onExit().thenRun(() -> System.exit(0));
        }
        System.out.println("ready on port " + ports.getLocalAddress(ConnectorType.BOLT).getPort());
        Thread.currentThread().join();
    }
}
