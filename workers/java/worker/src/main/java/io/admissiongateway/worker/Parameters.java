package io.admissiongateway.worker;

import java.util.Objects;
import tools.jackson.databind.JsonNode;

/**
 * The parameters that a policy takes: their JSON Schema, and how they are prepared.
 *
 * @param schema the JSON Schema, by which the gateway checks what webhooks configure
 * @param prepare makes {@link Review#parameters} from the parameters
 */
public record Parameters(JsonNode schema, Prepare prepare) {
    /** Checks that both are there, and that the schema is an object. */
    public Parameters {
        Objects.requireNonNull(prepare, "parameters are prepared by a function");
        if (!schema.isObject()) {
            throw new IllegalArgumentException("the JSON Schema of parameters is an object");
        }
    }

    /**
     * As the record, with the JSON Schema as text.
     *
     * @throws IllegalArgumentException if it is no JSON object
     */
    public static Parameters of(String schema, Prepare prepare) {
        try {
            return new Parameters(Json.MAPPER.readTree(schema), prepare);
        } catch (tools.jackson.core.JacksonException problem) {
            throw new IllegalArgumentException("the JSON Schema of parameters is not JSON", problem);
        }
    }

    /** Makes what a policy works with from its parameters, once for each value; calls share it. */
    @FunctionalInterface
    public interface Prepare {
        /**
         * Prepares the parameters of a webhook; an empty object if it has none.
         *
         * @throws Exception if they cannot be used, which fails the calls with them
         */
        Object prepare(JsonNode parameters) throws Exception;
    }
}
