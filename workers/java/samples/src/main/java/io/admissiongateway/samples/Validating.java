package io.admissiongateway.samples;

import io.admissiongateway.samples.Pods.Container;
import io.admissiongateway.samples.Pods.PodSpec;
import io.admissiongateway.worker.Cause;
import io.admissiongateway.worker.Denied;
import io.admissiongateway.worker.Review;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import tools.jackson.databind.JsonNode;

/** Sample policies that allow or deny. */
final class Validating {
    static final String REPLICAS_SCHEMA =
            """
            {
              "type": "object",
              "properties": {"max": {"type": "integer", "minimum": 0}},
              "additionalProperties": false
            }
            """;

    private static final Long DEFAULT_MAX = 10L;

    private static final List<String> REQUIRED_LABELS = List.of("team");

    private static final List<String> HOST_NAMESPACES = List.of("hostNetwork", "hostPID", "hostIPC");

    private static final String BUSY_ANNOTATION = "samples.example/busy";
    private static final int RETRY_AFTER_SECONDS = 10;

    private Validating() {}

    static void protectBusy(Review review) {
        if (!review.operation().equals("DELETE") || !review.subResource().isEmpty()) {
            return;
        }
        JsonNode metadata = review.oldObject().path("metadata");
        String work = metadata.path("annotations").path(BUSY_ANNOTATION).stringValue("");
        if (!work.isEmpty()) {
            String field = "metadata.annotations[" + BUSY_ANNOTATION + "]";
            throw new Denied(field + ": busy with " + work + ": try again when it is done")
                    .code(429)
                    .reason("TooManyRequests")
                    .retryAfterSeconds(RETRY_AFTER_SECONDS)
                    .name(metadata.path("name").stringValue(""))
                    .group(review.kind().path("group").stringValue(""))
                    .kind(review.kind().path("kind").stringValue(""))
                    .uid(metadata.path("uid").stringValue(""));
        }
    }

    static void requireLabels(Review review) {
        boolean isObject = Pods.isWrite(review) && review.subResource().isEmpty() && review.hasObject();
        if (!isObject || Pods.isLeaving(review.object())) {
            return;
        }
        JsonNode labels = review.object().path("metadata").path("labels");
        List<Cause> causes = new ArrayList<>();
        for (String label : REQUIRED_LABELS) {
            if (labels.path(label).stringValue("").isEmpty()) {
                String field = "metadata.labels[" + label + "]";
                causes.add(new Cause("label \"" + label + "\" is missing: add it", field, "FieldValueRequired"));
            }
        }
        denyFor(causes);
    }

    static void denyLatestTag(Review review) {
        PodSpec pod = Pods.specIn(review);
        if (pod == null) {
            return;
        }
        List<Cause> causes = new ArrayList<>();
        for (Container container : pod.containers(Pods.ALL_LISTS)) {
            String image = container.text("image");
            String problem = tagProblem(image);
            if (!image.isEmpty() && !problem.isEmpty()) {
                String message = "image \"" + image + "\" " + problem + ": name a version";
                causes.add(new Cause(message, container.path() + ".image"));
            }
        }
        denyFor(causes);
    }

    static void denyPrivileged(Review review) {
        PodSpec pod = Pods.specIn(review);
        if (pod == null) {
            return;
        }
        List<Cause> causes = new ArrayList<>();
        for (String field : HOST_NAMESPACES) {
            if (pod.spec().path(field).booleanValue(false)) {
                String message = field + " shares a namespace of the node: set it to false";
                causes.add(new Cause(message, pod.path() + "." + field));
            }
        }
        for (Container container : pod.containers(Pods.ALL_LISTS)) {
            if (container.json().path("securityContext").path("privileged").booleanValue(false)) {
                String message = "container \"" + container.text("name") + "\" is privileged: set it to false";
                causes.add(new Cause(message, container.path() + ".securityContext.privileged"));
            }
        }
        denyFor(causes);
    }

    static void warnNoMemoryLimit(Review review) {
        PodSpec pod = Pods.specIn(review);
        if (pod == null) {
            return;
        }
        List<String> unlimited = new ArrayList<>();
        for (Container container : pod.containers(Pods.ALL_LISTS)) {
            if (container.json().path("resources").path("limits").path("memory").asString("").isEmpty()) {
                unlimited.add(container.text("name"));
            }
        }
        for (String name : unlimited) {
            review.warn("container \"" + name + "\" has no memory limit");
        }
        if (!unlimited.isEmpty()) {
            review.annotate("no-memory-limit", String.join(",", unlimited));
        }
    }

    /** Prepares the parameters of {@link #limitReplicas}. */
    static Long maxReplicas(JsonNode parameters) {
        JsonNode max = parameters.path("max");
        if (max.isMissingNode()) {
            return DEFAULT_MAX;
        }
        if (!max.isIntegralNumber() || !max.canConvertToLong() || max.longValue() < 0) {
            throw new RuntimeException("max is to be a whole number of at least 0");
        }
        return max.longValue();
    }

    static void limitReplicas(Review review) {
        JsonNode replicas = review.object().path("spec").path("replicas");
        long most = review.parameters(Long.class);
        if (replicas.isIntegralNumber() && replicas.longValue() > most) {
            String message = replicas.longValue() + " is more than the maximum of " + most + ": lower it";
            denyFor(List.of(new Cause(message, "spec.replicas")));
        }
    }

    /** Denies for these causes, if there are any: field, problem and what to do of each. */
    private static void denyFor(List<Cause> causes) {
        if (!causes.isEmpty()) {
            String message = causes.stream()
                    .map(cause -> cause.field() + ": " + cause.message())
                    .collect(Collectors.joining("; "));
            throw new Denied(message).causes(causes);
        }
    }

    /** Returns the problem of an image's tag; empty if there is none. */
    private static String tagProblem(String image) {
        int digest = image.indexOf('@');
        if (digest >= 0 && digest < image.length() - 1) {
            return "";
        }
        String name = digest < 0 ? image : image.substring(0, digest);
        // A colon before the last slash is the registry's port.
        int colon = name.indexOf(':', name.lastIndexOf('/') + 1);
        String tag = colon < 0 ? "" : name.substring(colon + 1);
        if (tag.isEmpty()) {
            return "has no tag, which means latest";
        }
        return tag.equals("latest") ? "has the tag latest" : "";
    }
}
