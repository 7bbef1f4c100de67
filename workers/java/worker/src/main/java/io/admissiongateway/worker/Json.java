package io.admissiongateway.worker;

import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Locale;
import java.util.Map;
import tools.jackson.core.JacksonException;
import tools.jackson.core.JsonGenerator;
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

/**
 * Reads and writes JSON so that nothing is lost or added on the way: numbers keep their digits, and what is written
 * is compact, with the members of objects sorted, the same bytes as from the SDKs in other languages.
 */
final class Json {
    /** Sorts as code points do, and UTF-8; {@link String#compareTo} puts what is beyond U+FFFF before U+E000. */
    static final Comparator<String> BY_CODE_POINT = Json::compareCodePoints;

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

    /** Returns {@code value} as compact JSON, with the members of all objects sorted by code point. */
    static byte[] write(JsonNode value) {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        try (JsonGenerator generator = MAPPER.createGenerator(text)) {
            write(value, generator);
        }
        return text.toByteArray();
    }

    private static void write(JsonNode value, JsonGenerator generator) {
        if (value instanceof ObjectNode object) {
            generator.writeStartObject();
            String[] names = object.propertyNames().toArray(String[]::new);
            Arrays.sort(names, BY_CODE_POINT);
            for (String name : names) {
                generator.writeName(name);
                write(object.get(name), generator);
            }
            generator.writeEndObject();
        } else if (value instanceof ArrayNode array) {
            generator.writeStartArray();
            for (JsonNode item : array) {
                write(item, generator);
            }
            generator.writeEndArray();
        } else {
            generator.writeTree(value);
        }
    }

    /** Whether two values are equal as JSON: 1 and 1.0 are not, an int and a long of the same value are. */
    static boolean same(JsonNode left, JsonNode right) {
        if (left == right) {
            return true;
        }
        if (left.getNodeType() != right.getNodeType()) {
            return false;
        }
        if (left instanceof ObjectNode object) {
            if (object.size() != right.size()) {
                return false;
            }
            for (Map.Entry<String, JsonNode> member : object.properties()) {
                JsonNode other = right.get(member.getKey());
                if (other == null || !same(member.getValue(), other)) {
                    return false;
                }
            }
            return true;
        }
        if (left instanceof ArrayNode array) {
            if (array.size() != right.size()) {
                return false;
            }
            for (int index = 0; index < array.size(); index++) {
                if (!same(array.get(index), right.get(index))) {
                    return false;
                }
            }
            return true;
        }
        return left.isNumber() ? sameNumber(left, right) : left.equals(right);
    }

    private static boolean sameNumber(JsonNode left, JsonNode right) {
        if (left.isIntegralNumber() != right.isIntegralNumber()) {
            return false;
        }
        if (left.isIntegralNumber()) {
            return left.canConvertToLong() && right.canConvertToLong()
                    ? left.longValue() == right.longValue()
                    : left.bigIntegerValue().equals(right.bigIntegerValue());
        }
        return decimal(left).compareTo(decimal(right)) == 0;
    }

    private static BigDecimal decimal(JsonNode number) {
        try {
            return number.decimalValue();
        } catch (JacksonException notANumber) {
            throw new IllegalArgumentException(number + " is no number that JSON can say", notANumber);
        }
    }

    private static int compareCodePoints(String left, String right) {
        int length = Math.min(left.length(), right.length());
        for (int index = 0; index < length; index++) {
            char one = left.charAt(index);
            char other = right.charAt(index);
            if (one != other) {
                // Of two different characters at most one is the beginning of the other's surrogate pair.
                boolean oneIsBeyond = Character.isSurrogate(one);
                return oneIsBeyond == Character.isSurrogate(other) ? one - other : oneIsBeyond ? 1 : -1;
            }
        }
        return left.length() - right.length();
    }
}
