package io.admissiongateway.worker;

import java.math.BigDecimal;
import java.util.Locale;
import java.util.Map;
import tools.jackson.core.JacksonException;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.core.StreamWriteConstraints;
import tools.jackson.core.json.JsonFactory;
import tools.jackson.core.json.JsonWriteFeature;
import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.cfg.JsonNodeFeature;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/** Reads and writes JSON so that nothing is lost or added on the way: numbers keep their digits. */
final class Json {
    /** Levels; of what is read. The API server's own limit for JSON is 10,000, its objects have some twenty. */
    private static final int MAX_DEPTH = 1024;

    static final JsonMapper MAPPER =
            JsonMapper.builder(factory())
                    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
                    .enable(JsonNodeFeature.USE_BIG_DECIMAL_FOR_FLOATS)
                    .disable(JsonNodeFeature.STRIP_TRAILING_BIGDECIMAL_ZEROES)
                    .build();

    private Json() {}

    private static JsonFactory factory() {
        return JsonFactory.builder()
                .streamReadConstraints(
                        StreamReadConstraints.builder()
                                .maxNestingDepth(MAX_DEPTH)
                                .maxStringLength(Integer.MAX_VALUE)
                                .build())
                // A policy may put what was sent into something larger.
                .streamWriteConstraints(StreamWriteConstraints.builder().maxNestingDepth(2 * MAX_DEPTH).build())
                .disable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION)
                .enable(JsonWriteFeature.COMBINE_UNICODE_SURROGATES_IN_UTF8)
                .disable(JsonWriteFeature.WRITE_HEX_UPPER_CASE)
                .disable(JsonWriteFeature.ESCAPE_FORWARD_SLASHES)
                .build();
    }

    /** Returns the object in {@code text}, which the contract calls {@code what}. */
    static ObjectNode readObject(String what, byte[] text) {
        JsonNode value;
        try {
            value = MAPPER.readTree(text);
        } catch (JacksonException problem) {
            throw new MalformedPayload(what + " is not JSON: " + problem.getOriginalMessage());
        }
        if (value instanceof ObjectNode object) {
            return object;
        }
        if (value.isMissingNode()) {
            throw new MalformedPayload(what + " is not JSON: it is empty");
        }
        String found = value.getNodeType().name().toLowerCase(Locale.ROOT);
        throw new MalformedPayload(what + " is to be a JSON object, found " + found);
    }

    /**
     * Whether two values are equal as JSON: 1 and 1.0 are not, an int and a long of the same value are. It is found out
     * at once where {@code right} is a copy of {@code left} by {@link LazyCopy}.
     */
    static boolean same(JsonNode left, JsonNode right) {
        if (left == right || LazyCopy.isUntouched(left, right)) {
            return true;
        }
        if (left instanceof ObjectNode before && right instanceof ObjectNode after) {
            boolean isSame = before.size() == after.size();
            for (Map.Entry<String, JsonNode> member : before.properties()) {
                JsonNode other = isSame ? after.get(member.getKey()) : null;
                if (other == null || !same(member.getValue(), other)) {
                    return false;
                }
            }
            return isSame;
        }
        if (left instanceof ArrayNode before && right instanceof ArrayNode after) {
            int index = 0;
            while (index < before.size() && index < after.size() && same(before.get(index), after.get(index))) {
                index++;
            }
            return index == before.size() && index == after.size();
        }
        return areSameLeaves(left, right);
    }

    /** Whether two values are equal that are not both objects or lists. */
    private static boolean areSameLeaves(JsonNode left, JsonNode right) {
        boolean areNumbers = left.isNumber() && right.isNumber();
        boolean areAlike = areNumbers && left.isIntegralNumber() == right.isIntegralNumber();
        return left.equals(right) || areAlike && decimal(left).compareTo(decimal(right)) == 0;
    }

    private static BigDecimal decimal(JsonNode number) {
        try {
            return number.decimalValue();
        } catch (JacksonException notANumber) {
            throw new IllegalArgumentException(number + " is no number that JSON can say", notANumber);
        }
    }
}
