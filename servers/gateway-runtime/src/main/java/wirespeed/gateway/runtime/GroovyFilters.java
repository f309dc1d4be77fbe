// Filters in Groovy, compiled statically: mistakes show when the file is loaded.
package wirespeed.gateway.runtime;

import groovy.lang.GroovyClassLoader;
import groovy.lang.GroovySystem;
import groovy.transform.CompileStatic;
import java.util.ArrayList;
import java.util.List;
import org.codehaus.groovy.control.CompilationFailedException;
import org.codehaus.groovy.control.CompilerConfiguration;
import org.codehaus.groovy.control.customizers.ASTTransformationCustomizer;
import org.codehaus.groovy.reflection.ClassInfo;

/** A class of its own, so that Groovy is loaded only when a folder has such a file. */
final class GroovyFilters {
    private GroovyFilters() {
    }

    static List<Class<?>> compile(String fileName, String source) throws FilterCompiler.Failed {
        CompilerConfiguration configuration = new CompilerConfiguration();
        configuration.addCompilationCustomizers(
                new ASTTransformationCustomizer(CompileStatic.class));
        // Not closed: the loader lives as long as its classes, and holds no file.
        @SuppressWarnings("resource")
        GroovyClassLoader loader = new GroovyClassLoader(new FilterCompiler.ApiLoader(
                "wirespeed.gateway.core.", "groovy.", "org.codehaus.groovy.",
                "org.apache.groovy."), configuration);
        try {
            loader.parseClass(source, fileName);
        } catch (CompilationFailedException | LinkageError e) {
            throw new FilterCompiler.Failed(fileName + ": " + e.getMessage().replace('\n', ' '), e);
        }
        List<Class<?>> classes = new ArrayList<>();
        for (Class<?> type : loader.getLoadedClasses()) {
            classes.add(type);
        }
        return classes;
    }

    /** Groovy keeps its data about a class until it is notified that the class has gone. */
    static void forget(Class<?> type) {
        if (type.getClassLoader() instanceof GroovyClassLoader.InnerLoader inner) {
            for (Class<?> loaded : inner.getLoadedClasses()) {
                drop(loaded);
            }
        }
        drop(type);
    }

    private static void drop(Class<?> type) {
        GroovySystem.getMetaClassRegistry().removeMetaClass(type);
        ClassInfo.remove(type);
    }
}
