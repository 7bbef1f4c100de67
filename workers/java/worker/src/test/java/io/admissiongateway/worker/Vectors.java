package io.admissiongateway.worker;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import tools.jackson.databind.JsonNode;

/** What all SDKs are to answer alike. */
final class Vectors {
    private static final Path FOLDER = Path.of("..", "..", "conformance", "admission_gateway_conformance");

    private Vectors() {}

    static JsonNode read(String file) throws IOException {
        JsonNode vectors = Json.MAPPER.readTree(Files.readAllBytes(FOLDER.resolve(file)));
        if (vectors.isEmpty()) {
            throw new IllegalStateException(file + " holds no vectors");
        }
        return vectors;
    }
}
