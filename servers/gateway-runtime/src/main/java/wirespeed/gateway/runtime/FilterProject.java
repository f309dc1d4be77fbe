// Makes a Maven project for filters: a filter, its test, and a build that packs both with libraries.
package wirespeed.gateway.runtime;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** The jar of the gateway that makes the project has the API, so that no repository is needed for it. */
final class FilterProject {
    private static final String POM = """
            <?xml version="1.0" encoding="UTF-8"?>
            <project xmlns="http://maven.apache.org/POM/4.0.0">
              <modelVersion>4.0.0</modelVersion>
              <groupId>filters</groupId>
              <artifactId>filters</artifactId>
              <version>1</version>

              <properties>
                <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
                <maven.compiler.release>17</maven.compiler.release>
                <!-- The gateway, whose jar has the API of filters: -Dgateway.jar=PATH for another one. -->
                <gateway.jar>@JAR@</gateway.jar>
              </properties>

              <dependencies>
                <dependency>
                  <groupId>wirespeed</groupId>
                  <artifactId>gateway</artifactId>
                  <version>1</version>
                  <!-- Not packed into the jar: the gateway has it. -->
                  <scope>system</scope>
                  <systemPath>${gateway.jar}</systemPath>
                </dependency>
                <dependency>
                  <groupId>org.junit.jupiter</groupId>
                  <artifactId>junit-jupiter</artifactId>
                  <version>5.14.4</version>
                  <scope>test</scope>
                </dependency>
              </dependencies>

              <build>
                <finalName>filters</finalName>
                <plugins>
                  <plugin>
                    <artifactId>maven-resources-plugin</artifactId>
                    <version>3.3.1</version>
                  </plugin>
                  <plugin>
                    <artifactId>maven-compiler-plugin</artifactId>
                    <version>3.14.1</version>
                  </plugin>
                  <plugin>
                    <artifactId>maven-surefire-plugin</artifactId>
                    <version>3.5.4</version>
                  </plugin>
                  <plugin>
                    <artifactId>maven-jar-plugin</artifactId>
                    <version>3.5.0</version>
                  </plugin>
                  <plugin>
                    <!-- Packs libraries that are dependencies. -->
                    <artifactId>maven-shade-plugin</artifactId>
                    <version>3.6.1</version>
                    <executions>
                      <execution>
                        <phase>package</phase>
                        <goals>
                          <goal>shade</goal>
                        </goals>
                        <configuration>
                          <createDependencyReducedPom>false</createDependencyReducedPom>
                        </configuration>
                      </execution>
                    </executions>
                  </plugin>
                </plugins>
              </build>
            </project>
            """;
    private static final String FILTER = """
            package filters;

            import wirespeed.gateway.core.*;

            /** Refuses requests without a tenant, and passes its name to the origin. */
            public class TenantFilter implements Filter {
                @Override
                public Phase phase() {
                    return Phase.PRE;
                }

                @Override
                public int order() {
                    return 50;
                }

                @Override
                public Step apply(Context context) {
                    String host = String.valueOf(context.request().host());
                    int dot = host.indexOf('.');
                    if (dot < 0) {
                        return Step.respond(Response.of(404, "text/plain", "no such tenant\\n"));
                    }
                    context.request().headers().set("X-Tenant", host.substring(0, dot));
                    return Step.NEXT;
                }
            }
            """;
    private static final String TEST = """
            package filters;

            import static org.junit.jupiter.api.Assertions.assertEquals;

            import org.junit.jupiter.api.Test;
            import wirespeed.gateway.core.FilterTest;

            class TenantFilterTest {
                private final FilterTest test = FilterTest.of(new TenantFilter());

                @Test
                void the_origin_gets_the_tenant() {
                    FilterTest.Result result = test.run("GET / HTTP/1.1\\nHost: acme.example");
                    assertEquals("acme", result.forwarded().headers().get("X-Tenant"));
                }

                @Test
                void a_host_without_a_tenant_is_refused() {
                    assertEquals(404, test.run("GET / HTTP/1.1\\nHost: example").status());
                }
            }
            """;
    private static final String LIST = """
            # The filters of this jar, a class on each line.
            filters.TenantFilter
            """;

    private FilterProject() {
    }

    /**
     * Writes the project; the answer says what to do with it.
     *
     * @param folder which there must not be yet
     * @param gateway the jar that runs now
     */
    static String make(Path folder, Path gateway) throws IOException {
        if (Files.exists(folder)) {
            throw new ConfigError("--new-filter " + folder + ": it exists already (name a new folder)");
        }
        if (!Files.isRegularFile(gateway)) {
            throw new ConfigError("--new-filter: the gateway does not run from its jar (build it with mvn package)");
        }
        Map<String, String> files = new LinkedHashMap<>();
        String jar = gateway.toAbsolutePath().toString();
        files.put("pom.xml", POM.replace("@JAR@", jar.replace("&", "&amp;").replace("<", "&lt;")));
        files.put("src/main/java/filters/TenantFilter.java", FILTER);
        files.put("src/main/resources/META-INF/services/wirespeed.gateway.core.Filter", LIST);
        files.put("src/test/java/filters/TenantFilterTest.java", TEST);
        for (Map.Entry<String, String> file : files.entrySet()) {
            Path path = folder.resolve(file.getKey());
            Files.createDirectories(path.getParent());
            Files.writeString(path, file.getValue());
        }
        return folder + " has a filter and its test. \"mvn package\" there makes target/filters.jar for"
                + " the folder of filters.";
    }
}
